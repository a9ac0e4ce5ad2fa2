// SPDX-License-Identifier: Apache-2.0
// The loops of the linear algebra rows (linalg_eigen.cpp), used as their references. Each takes
// dense or strided stacks of matrices, processes one matrix per task, and reports a matrix that it
// cannot handle by its index in the stack. Not installed.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

void run_cholesky(const KernelCall& k);
void run_solve_triangular(const KernelCall& k);
void run_lu_factor(const KernelCall& k);
void run_lu_permutation(const KernelCall& k);
void run_solve(const KernelCall& k);
void run_inv(const KernelCall& k);
void run_det(const KernelCall& k);
void run_slogdet(const KernelCall& k);
void run_cofactor(const KernelCall& k);
void run_qr(const KernelCall& k);
void run_eigh(const KernelCall& k);
void run_svd(const KernelCall& k);
void run_pinv(const KernelCall& k);
void run_matrix_exp(const KernelCall& k);

}  // namespace tandem::detail
