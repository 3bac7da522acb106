"""The operators of aten that a graph may call, and which of their arguments.

An operator is here if it checks what it is given: whatever the shapes, strides, indices and numbers, it stays within
the memory of its tensors, or raises. `autograder.bench.operators` tries that, against guard pages. Not here: backward
functions, which trust what the forward one has saved; kernels behind a public function that makes the checks
(native_batch_norm); as_strided, whose in-place form lets strides beyond 2**62 wrap around; median, which reads behind
the end of some expanded tensors; eig, where LAPACK crashes on NaN; sparse, nested and quantized tensors; LAPACK's
packed factors and pivots; and what no lesson needs.

A name stands for the function, its in-place form (`add_`), and all overloads that do not write into further arguments.
"""

from __future__ import annotations

_OPERATORS = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _assert_async _assert_scalar _assert_tensor_metadata _conj
    _log_softmax _neg_view _softmax _to_copy _unsafe_view abs absolute acos acosh adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm
    addcdiv addcmul addmm addmv addr adjoint affine_grid_generator alias alias_copy all allclose alpha_dropout amax
    amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort
    argwhere asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d baddbmm
    bartlett_window batch_norm bernoulli bilinear binary_cross_entropy binary_cross_entropy_with_logits bincount
    binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window
    block_diag bmm broadcast_tensors broadcast_to bucketize can_cast cartesian_prod cat cauchy cdist ceil celu
    chain_matmul chalf channel_shuffle cholesky cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min
    clip clone col2im column_stack combinations complex concat concatenate conj conj_physical constant_pad_nd
    contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution copy copysign
    corrcoef cos cosh cosine_embedding_loss cosine_similarity count_nonzero cov cross cross_entropy_loss cummax
    cummin cumprod cumsum cumulative_trapezoid deg2rad det detach detach_copy diag diag_embed diagflat diagonal
    diagonal_copy diagonal_scatter diff digamma dim dist div divide dot dropout dsplit dstack einsum elu embedding
    empty empty_like empty_permuted empty_strided eq equal erf erfc erfinv exp exp2 expand expand_as expand_copy
    expm1 exponential eye feature_alpha_dropout feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift
    fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn
    fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftfreq fft_rfftn fill fill_diagonal fix flatten flip
    fliplr flipud float_power floor floor_divide fmax fmin fmod frac frexp frobenius_norm full full_like gather gcd
    ge gelu geometric ger glu gradient greater greater_equal grid_sampler grid_sampler_2d grid_sampler_3d
    group_norm gt hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh heaviside
    hinge_embedding_loss histc histogram histogramdd hsplit hstack huber_loss hypot i0 igamma igammac im2col imag
    index index_add index_copy index_fill index_put index_reduce index_select inner instance_norm inverse
    is_complex is_conj is_contiguous is_floating_point is_neg is_nonzero is_same_size is_signed isclose isfinite
    isin isinf isnan isneginf isposinf isreal istft item kaiser_window kl_div kron kthvalue l1_loss layer_norm lcm
    ldexp le leaky_relu lerp less less_equal lgamma linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross
    linalg_det linalg_diagonal linalg_eigh linalg_eigvalsh linalg_inv linalg_inv_ex linalg_lstsq linalg_lu
    linalg_lu_factor linalg_lu_factor_ex linalg_matmul linalg_matrix_exp linalg_matrix_norm linalg_matrix_power
    linalg_matrix_rank linalg_multi_dot linalg_norm linalg_pinv linalg_qr linalg_slogdet linalg_solve
    linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve
    linalg_vander linalg_vecdot linalg_vector_norm linear linspace log log10 log1p log2 log_normal log_sigmoid
    log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor logit
    logspace logsumexp lt mH mT margin_ranking_loss masked_fill masked_scatter masked_select matmul matrix_H
    matrix_exp matrix_power max max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices maximum mean meshgrid min minimum mish mm mode moveaxis movedim mse_loss msort mul
    multi_margin_loss multilabel_margin_loss multinomial multiply mv mvlgamma nan_to_num nanmean nanquantile nansum
    narrow narrow_copy native_channel_shuffle ne neg negative new_empty new_empty_strided new_full new_ones
    new_zeros nextafter nll_loss nll_loss2d nll_loss_nd nonzero nonzero_numpy nonzero_static norm normal not_equal
    nuclear_norm numel numpy_T one_hot ones ones_like outer pad pad_sequence pairwise_distance pdist permute
    permute_copy pinverse pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar polygamma positive pow prelu
    prod promote_types put qr quantile rad2deg rand rand_like randint randint_like randn randn_like random randperm
    range ravel real reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder renorm
    repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape reshape_as resize
    resize_as resolve_conj resolve_neg result_type rms_norm roll rot90 round row_stack rrelu rsqrt rsub
    scalar_tensor scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted select select_copy
    select_scatter selu sgn sigmoid sign signbit silu sin sinc sinh size slice slice_copy slice_inverse
    slice_scatter slogdet smooth_l1_loss soft_margin_loss softmax softplus softshrink sort special_airy_ai
    special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
    special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_digamma
    special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 special_expit special_expm1
    special_gammainc special_gammaincc special_gammaln special_hermite_polynomial_h special_hermite_polynomial_he
    special_i0 special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p
    special_log1p special_log_ndtr special_log_softmax special_logit special_logsumexp special_modified_bessel_i0
    special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_multigammaln
    special_ndtr special_ndtri special_polygamma special_psi special_round special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_sinc special_softmax
    special_spherical_bessel_j0 special_xlog1py special_xlogy special_zeta split split_copy split_with_sizes
    split_with_sizes_copy sqrt square squeeze squeeze_copy stack std std_mean stft storage_offset stride sub
    subtract sum sum_to_size svd swapaxes swapdims sym_is_contiguous sym_numel sym_size sym_storage_offset
    sym_stride t t_copy take take_along_dim tan tanh tensor_split tensordot threshold tile to topk trace transpose
    transpose_copy trapezoid trapz triangular_solve tril tril_indices triplet_margin_loss triu triu_indices
    true_divide trunc type_as unbind unbind_copy unflatten unfold unfold_copy uniform unique_consecutive unique_dim
    unique_dim_consecutive unsqueeze unsqueeze_copy upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d vander var var_mean vdot view
    view_as view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy vsplit vstack where xlogy
    zero zeros zeros_like
"""
OPERATORS = frozenset(_OPERATORS.split())

_INTO = """
    abs add ceil clamp clamp_max clamp_min cos div exp floor log maximum minimum mul neg pow reciprocal round rsqrt
    sigmoid sin sqrt square sub tanh true_divide
"""
#: Operators that may be given `out=`: element by element, they check its shape, dtype and overlap.
INTO = frozenset(_INTO.split())

#: Keyword arguments that switch checks off or name where to write, whatever the operator.
BARRED_ARGUMENTS = frozenset(("check_invariants", "grad_input", "unsafe"))
