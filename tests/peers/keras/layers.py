# SPDX-License-Identifier: Apache-2.0
# The layers of tests/peers/tensorflow: a small network for each public layer of Keras, by name, and
# the layers that no file can hold or that cannot be read, with the cause.
import keras
import numpy as np

L = keras.layers
K = keras.ops
rng = np.random.default_rng(1)


def on(layer, *shapes, dtype="float32", low=0.0, high=1.0, listed=False):
    """A model of one layer, or of a function of inputs, with its inputs' values."""
    inputs = [keras.Input(s, dtype=dtype, name="x%d" % i) for i, s in enumerate(shapes)]
    y = layer(list(inputs) if listed else inputs[0]) if len(inputs) == 1 or listed else layer(*inputs)
    return keras.Model(inputs, y), [rng.uniform(low, high, (2,) + tuple(s)).astype(dtype) for s in shapes]


def masked(layer, **options):
    """A layer behind an embedding whose zeros do not count; they stand at the end, inside and everywhere."""
    ids = keras.Input((6,), dtype="int32", name="x0")
    x = np.array([[3, 1, 4, 0, 0, 0], [0, 2, 0, 5, 6, 0], [0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6]][:options.pop("n", 4)], "int32")
    return keras.Model(ids, layer(L.Embedding(9, 4, mask_zero=True)(ids))), [x]


def stacked(*layers, shape, dtype="float32", low=0.0, high=1.0):
    return keras.Sequential([keras.Input(shape, dtype=dtype, name="x0")] + list(layers)), \
        [rng.uniform(low, high, (3,) + tuple(shape)).astype(dtype)]


def masked_steps(*layers):
    net, x = stacked(L.Masking(0.5), *layers, shape=(5, 3))
    x[0][0, 3:] = 0.5
    x[0][1, [0, 2]] = 0.5
    return net, x


IMAGE = (9, 7, 3)
RANDOM = {"RandomBrightness": (0.2,), "RandomColorDegeneration": (0.2,), "RandomColorJitter": (), "RandomContrast": (0.2,),
          "RandomElasticTransform": (), "RandomErasing": (), "RandomFlip": (), "RandomGaussianBlur": (), "RandomGrayscale": (),
          "RandomHue": (0.2,), "RandomInvert": (), "RandomPerspective": (), "RandomPosterization": (4,), "RandomRotation": (0.2,),
          "RandomSaturation": (0.2,), "RandomSharpness": (0.2,), "RandomShear": (), "RandomTranslation": (0.2, 0.2),
          "RandomZoom": (0.2,), "AugMix": (), "CutMix": (), "MixUp": (), "RandAugment": (), "Solarization": (), "Equalization": ()}
# Keras 3.15.1 gives the input itself as the result's description, of which no network can be made.
L.Equalization.compute_output_spec = lambda self, x, **options: keras.KerasTensor(x.shape, x.dtype)
ACTIVATIONS = ["celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu",
               "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax",
               "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "tanh", "tanh_shrink"]


def attend(**options):
    def f(x):
        return L.MultiHeadAttention(2, 3)(x, x, **options)
    return f


CASES = {
    "activations": lambda: on(lambda x: [L.Activation(a)(x) for a in ACTIVATIONS], (5, 6), low=-2),
    "random": lambda: stacked(*[getattr(L, n)(*a) for n, a in RANDOM.items()], shape=IMAGE),
    "RandomCrop": lambda: on(lambda x: [L.RandomCrop(4, 5)(x), L.RandomCrop(12, 8)(x * 2.0)], IMAGE),
    "CenterCrop": lambda: on(lambda x: [L.CenterCrop(4, 4)(x), L.CenterCrop(12, 8)(x)], IMAGE),
    "Resizing": lambda: on(lambda x: [L.Resizing(5, 8)(x), L.Resizing(12, 4, "nearest")(x), L.Resizing(5, 5, "bicubic")(x),
                                      L.Resizing(6, 3, crop_to_aspect_ratio=True)(x),
                                      L.Resizing(6, 9, pad_to_aspect_ratio=True, fill_value=0.5)(x)], IMAGE),
    "AutoContrast": lambda: on(L.AutoContrast(value_range=(0, 1)), IMAGE),
    "Rescaling": lambda: on(lambda x: [L.Rescaling([1.0, 2.0, 3.0], [0.5, 0.0, 1.0])(x), L.Rescaling(2.0)(x)], IMAGE),
    "Dot": lambda: on(lambda a, b: [L.Dot(2)([a, b]), L.Dot((2, 2), normalize=True)([a, b]), L.Dot(-1)([a[:, 0], b[:, 1]])],
                      (4, 5), (3, 5)),
    "RMSNormalization": lambda: on(lambda x: [L.RMSNormalization()(x), L.RMSNormalization(axis=[1, 2])(x)], (4, 5)),
    "LayerNormalization": lambda: on(lambda x: [L.LayerNormalization(axis=(1, 2))(x), L.LayerNormalization(axis=1)(x)], (4, 5, 3)),
    "norms": lambda: on(lambda x: [L.BatchNormalization(axis=1)(x), L.UnitNormalization(axis=1)(x), L.GroupNormalization(2)(x)], (6, 4)),
    "Softmax": lambda: on(lambda x: [L.Softmax(axis=[1, 2])(x), L.Softmax(axis=1)(x)], (4, 5, 3)),
    "ReLU": lambda: on(lambda x: [L.ReLU(1.0, 0.2, 0.5)(x), L.ReLU(None, 0.1, 0.5)(x), L.LeakyReLU()(x)], (9,), low=-2),
    "ConvLSTM1D": lambda: on(lambda x: L.ConvLSTM1D(2, 3, return_sequences=True)(x), (4, 7, 2)),
    "ConvLSTM2D": lambda: on(lambda x: L.ConvLSTM2D(2, 3, padding="same", strides=2, return_state=True)(x), (3, 6, 5, 2)),
    "ConvLSTM3D": lambda: on(L.ConvLSTM3D(2, 2, dilation_rate=1, recurrent_activation="hard_sigmoid", go_backwards=True),
                             (3, 4, 4, 3, 2)),
    "GroupQueryAttention": lambda: on(lambda x: [L.GroupQueryAttention(4, 4, 2)(x, x),
                                                 L.GroupQueryAttention(3, 4, 1, sliding_window=2)(x, x, use_causal_mask=True)], (6, 8)),
    "Attention": lambda: on(lambda a, b: [L.Attention(use_scale=True)([a, b]), L.Attention(score_mode="concat")([a, b, b]),
                                          L.AdditiveAttention()([a, b]), L.Attention()([b, b], use_causal_mask=True)], (4, 3), (5, 3)),
    "SpectralNormalization": lambda: on(L.SpectralNormalization(L.Dense(3)), (4,)),
    "TimeDistributed": lambda: on(lambda x: [L.TimeDistributed(L.Conv2D(2, 3))(x), L.TimeDistributed(
        keras.Sequential([L.Conv2D(2, 3), L.GlobalMaxPooling2D()]))(x)], (3, 6, 5, 2)),
    "RNN": lambda: on(lambda x: [L.RNN(L.LSTMCell(3))(x), L.RNN([L.LSTMCell(3), L.GRUCell(2), L.GRUCell(4)], return_sequences=True)(x),
                                 L.Bidirectional(L.RNN(L.SimpleRNNCell(2)))(x)], (5, 4)),
    "states": lambda: on(lambda x, h, c: [L.LSTM(3)(x, initial_state=[h, c]), L.GRU(3, return_state=True)(x, initial_state=h)[1]],
                         (5, 4), (3,), (3,)),
    "recurrent": lambda: on(lambda x: [L.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid")(x),
                                       L.GRU(3, activation="softsign", reset_after=False)(x), L.SimpleRNN(3, activation="relu")(x),
                                       *L.Bidirectional(L.LSTM(2, return_state=True))(x)], (5, 4)),
    "mask_zero": lambda: masked(lambda x: [L.LSTM(3)(x), L.GRU(3, return_sequences=True)(x), L.SimpleRNN(3, go_backwards=True)(x),
                                           L.Bidirectional(L.LSTM(3, return_sequences=True))(x), L.GRU(2, return_state=True)(x)[1],
                                           L.LSTM(3, return_sequences=True, zero_output_for_mask=True)(x)]),
    "mask_states": lambda: masked(lambda x: L.LSTM(3, return_state=True)(x)),
    "mask_pooled": lambda: masked(lambda x: [L.GlobalAveragePooling1D()(x)], n=2),
    "mask_attended": lambda: masked(lambda x: attend()(x), n=2),
    "mask_causal": lambda: masked(lambda x: attend(use_causal_mask=True)(x), n=2),
    "mask_query": lambda: masked(lambda x: [L.Attention()([x, x])], n=2),
    "mask_key": lambda: masked(lambda x: L.MultiHeadAttention(2, 3)(x * 2.0, L.Dense(3)(x[:, :]), key=x), n=2),
    "mask_joined": lambda: masked(lambda x: [L.LSTM(3)(L.Concatenate()([x, L.Dense(2)(x)])), L.GRU(2)(L.Concatenate(1)([x, L.Dense(4)(x[:, 1:])])),
                                             L.GRU(3, return_sequences=True)(L.Add()([x, L.Concatenate()([L.Dense(1)(x), L.Dense(3)(x)])])),
                                             L.SimpleRNN(2)(L.Concatenate(1)([L.Concatenate(1)([x, x]), x])), attend()(L.Concatenate(1)([x, L.Dense(4)(x)]))], n=2),
    "Masking": lambda: masked_steps(L.Dense(4, "tanh"), L.LSTM(3, return_sequences=True), L.GRU(2)),
    "MaskingTwo": lambda: masked_steps(L.Bidirectional(L.GRU(2, return_sequences=True)), L.Dropout(0.1), L.SimpleRNN(3)),
    "adaptive": lambda: on(lambda x: [L.AdaptiveAveragePooling2D((3, 4))(x), L.AdaptiveMaxPooling2D(4)(x)], IMAGE),
    "adaptive1": lambda: on(lambda x: [L.AdaptiveAveragePooling1D(3)(x), L.AdaptiveMaxPooling1D(4)(x)], (8, 2)),
    "adaptive3": lambda: on(lambda x: [L.AdaptiveAveragePooling3D(2)(x), L.AdaptiveMaxPooling3D(2)(x)], (4, 5, 6, 2)),
    "CategoryEncoding": lambda: on(lambda x: [L.CategoryEncoding(6)(x), L.CategoryEncoding(6, "count")(x), L.CategoryEncoding(6, "one_hot")(x[:, :1])],
                                   (4,), dtype="int32", high=6),
    "Discretization": lambda: on(lambda x: [L.Discretization([0.2, 0.5, 0.9])(x), L.Discretization([0.2, 0.5], output_mode="one_hot")(x)], (4,)),
    "ReversibleEmbedding": lambda: reversible(),
    "line": lambda: on(lambda x: [L.Conv1DTranspose(3, 3, strides=2, padding="same")(x), L.Conv1DTranspose(2, 3, strides=2, output_padding=None)(x),
                                  L.DepthwiseConv1D(3, depth_multiplier=2)(x), L.SeparableConv1D(4, 3, padding="same", dilation_rate=2)(x),
                                  L.AveragePooling1D(3, 2, "same")(x), L.GlobalMaxPooling1D()(x), L.GlobalMaxPooling1D(keepdims=True)(x),
                                  L.Cropping1D((1, 2))(x), L.UpSampling1D(3)(x), L.ZeroPadding1D((1, 2))(x)], (8, 3)),
    "plane": lambda: on(lambda x: [L.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=2)(x), L.DepthwiseConv2D((2, 3), dilation_rate=2)(x)], IMAGE),
    "volume": lambda: on(lambda x: [L.Conv3D(3, 2, padding="same", strides=(1, 2, 1))(x), L.Conv3DTranspose(2, 3, strides=2, padding="same")(x),
                                    L.AveragePooling3D(2, padding="same")(x), L.MaxPooling3D((2, 1, 3))(x), L.GlobalAveragePooling3D()(x),
                                    L.GlobalMaxPooling3D(keepdims=True)(x), L.Cropping3D(((1, 0), (0, 1), (2, 1)))(x), L.UpSampling3D((2, 1, 3))(x),
                                    L.ZeroPadding3D(((0, 1), (2, 0), (1, 1)))(x)], (5, 4, 6, 2)),
    "merged": lambda: on(lambda a, b: [L.Average()([a, b, a]), L.Maximum()([a, b]), L.Minimum()([a, b, 2.0 * b]), L.Multiply()([a, b]), L.Subtract()([a, b])], (4, 5), (4, 5)),
    "at_training": lambda: on(lambda x: [L.ActivityRegularization(0.1)(x), L.AlphaDropout(0.3)(x), L.GaussianDropout(0.3)(x), L.GaussianNoise(0.3)(x), L.Identity()(x),
                                         L.SpatialDropout1D(0.3)(x[:, 0, 0]), L.SpatialDropout2D(0.3)(x[:, 0]), L.SpatialDropout3D(0.3)(x)], (3, 4, 5, 2)),
    "Pipeline": lambda: on(lambda x: L.Pipeline([L.Rescaling(2.0), L.CenterCrop(4, 4), L.RandomFlip()])(x), IMAGE),
    "channels_first": lambda: on(lambda x: [L.ZeroPadding2D(1, data_format="channels_first")(x), L.UpSampling2D(2, data_format="channels_first")(x),
                                            L.Flatten(data_format="channels_first")(x), L.GlobalAveragePooling2D(data_format="channels_first")(x)], (3, 4, 5)),
    "UpSampling": lambda: on(lambda x: [L.UpSampling2D((2, 3), interpolation="bicubic")(x), L.UpSampling2D(2)(x),
                                        L.UpSampling2D((3, 2), interpolation="bilinear")(x)], (4, 5, 2)),
    "slices": lambda: on(lambda x: [x[:, 0], x[..., ::2], x[:, -1, None, 1:3], x[:, 1:-1]], (4, 5)),
    "shapes": lambda: on(lambda x: [K.reshape(x, (-1, 20)), K.transpose(x, (0, 2, 1)), K.swapaxes(x, 1, 2), K.moveaxis(x, 1, -1),
                                    K.expand_dims(x, 1), K.squeeze(x[:, :1], 1), K.concatenate([x, x], 1), K.stack([x, x], 1),
                                    *K.split(x, 2, 1), *K.split(x, [1, 3], 2), K.flip(x, 1), K.roll(x, 2, 1), K.tile(x, (1, 2, 1)),
                                    K.repeat(x, 2, 1), K.pad(x, ((0, 0), (1, 2), (0, 0))), K.take(x, [2, 0], 1)], (4, 5)),
    "reductions": lambda: on(lambda x: [K.mean(x, 1), K.sum(x, (1, 2)), K.max(x, -1, keepdims=True), K.min(x, 1), K.prod(x, 1),
                                        K.var(x, 1), K.std(x, -1), K.logsumexp(x, 1), K.argmax(x, 1), K.argmin(x, -1), K.norm(x, axis=1),
                                        K.cumsum(x, 1), K.cumprod(x, 1), K.sort(x, 1), K.argsort(x, 1), *K.top_k(x, 2), K.normalize(x)], (4, 5)),
    "functions": lambda: on(lambda x: [K.log1p(x), K.exp2(x), K.arctan2(x, x + 1.0), K.where(x > 0.5, x, 0.0), K.clip(x, 0.2, 0.7),
                                       K.cast(x > 0.3, "float32"), K.logaddexp(x, 2.0 * x), 1.0 / (x + 1.0), 2.0 - x, K.gelu(x, approximate=False),
                                       K.silu(x), K.softmax(x, 1), K.leaky_relu(x), K.one_hot(K.cast(3.0 * x, "int32"), 4), K.tril(x), K.triu(x, 1),
                                       K.maximum(x, 0.5), K.mod(x, 0.3), K.einsum("abc,abd->acd", x, x), K.matmul(x, K.transpose(x, (0, 2, 1))),
                                       K.tensordot(x, K.ones_like(x[0]), axes=[[2], [1]]), K.diff(x, axis=1), x ** 2, x // 0.3], (4, 5)),
    "keywords": lambda: on(lambda x: [K.add(x, x2=2.0), K.subtract(x1=3.0, x2=x), K.divide(x, x2=2), K.where(x > 0.5, x1=x, x2=1.0), K.where(x > 0.5, x, x2=0.5),
                                      K.power(x, x2=3)], (4, 5)),
    "settings": lambda: on(lambda x: [K.leaky_relu(x, 0.3), K.elu(x, 0.7), K.celu(x, 0.6), K.soft_shrink(x, 0.4), K.hard_shrink(x, 0.3), K.squareplus(x, 2), K.elu(x)],
                           (4, 5), low=-2),
    "normalized": lambda: on(lambda x: [K.layer_normalization(x), K.layer_normalization(x, x[0, 0], x[1, 1]), K.layer_normalization(x, None, x[0, 0], epsilon=0.1),
                                        K.layer_normalization(x, x[0, 0], axis=-1, rms_scaling=True), K.rms_normalization(x, x[0, 0]), K.rms_normalization(x, epsilon=0.2),
                                        L.LayerNormalization(rms_scaling=True)(x)], (4, 5)),
}

# What a file cannot hold as a graph, and why.
REFUSED = {
    "Lambda": lambda: on(L.Lambda(lambda x: x + 1, output_shape=(4,)), (4,)),
    "ContrastLimitedAdaptiveHistogramEqualization": lambda: on(L.ContrastLimitedAdaptiveHistogramEqualization(), IMAGE),
    "Hashing": lambda: on(L.Hashing(5), (4,), dtype="int32"),
    "IntegerLookup": lambda: on(L.IntegerLookup(vocabulary=[1, 2, 3]), (4,), dtype="int64"),
    "MelSpectrogram": lambda: on(L.MelSpectrogram(fft_length=64, sequence_stride=32, num_mel_bins=8), (256,)),
    "STFTSpectrogram": lambda: on(L.STFTSpectrogram(frame_length=64), (256, 1)),
}

# Public classes without a case: base classes, and layers of the kinds above that need files, other
# frameworks or modules of Python.
NO_CASE = {"Layer", "Wrapper", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper", "HashedCrossing", "StringLookup",
           "TextVectorization", "MaxNumBoundingBoxes"}


def reversible():
    ids = keras.Input((4,), dtype="int32", name="x0")
    e = L.ReversibleEmbedding(7, 3, logit_soft_cap=2.0)
    return keras.Model(ids, e(L.Dense(3)(e(ids)), reverse=True)), [rng.integers(0, 7, (2, 4)).astype("int32")]
