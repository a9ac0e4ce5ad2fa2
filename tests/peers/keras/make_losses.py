# SPDX-License-Identifier: Apache-2.0
# Makes tests/train/golden/keras_losses.inc: `python make_losses.py > tests/train/golden/keras_losses.inc`
import os
os.environ["CUDA_VISIBLE_DEVICES"]=""; os.environ["TF_CPP_MIN_LOG_LEVEL"]="3"
import numpy as np, keras
L=keras.losses
y=np.array([[0,1,.5],[1,0,2]],"f4"); p=np.array([[.1,.7,.2],[.6,.3,.1]],"f4")
dense=np.array([[0,1,0],[1,0,0]],"f4"); labels=np.array([1,0])
rows=[]
def row(name,t,o,lo,f):
    v={"y":y,"p":p,"dense":dense,"labels":labels}
    rows.append('      {"%s", %s, %s, %s, %.9g},'%(name,t,o,"true" if lo else "false",float(f(v[t],v[o]))))
for n,c in dict(mse=L.MeanSquaredError,mae=L.MeanAbsoluteError,mape=L.MeanAbsolutePercentageError,msle=L.MeanSquaredLogarithmicError,huber=L.Huber,log_cosh=L.LogCosh,poisson=L.Poisson,cosine_similarity=L.CosineSimilarity).items():
    row(n,"y","p",True,c())
for n,c in dict(kl_divergence=L.KLDivergence,hinge=L.Hinge,squared_hinge=L.SquaredHinge).items():
    row(n,"dense","p",True,c())
for lo in (True,False):
    row("categorical_crossentropy","dense","p",lo,L.CategoricalCrossentropy(from_logits=lo))
    row("sparse_categorical_crossentropy","labels","p",lo,L.SparseCategoricalCrossentropy(from_logits=lo))
    row("binary_crossentropy","dense","p",lo,L.BinaryCrossentropy(from_logits=lo))
print("// SPDX-License-Identifier: Apache-2.0\n// keras.losses of Keras %s: name, y_true, y_pred, from_logits, loss."%keras.__version__)
print("\n".join(rows))
