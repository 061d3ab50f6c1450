# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the model's code may ask a traced tensor, by kind of question.

PROPERTIES  follow from rank, dtype and device, which the traced module checks: a plain answer
SIZES       answered with symbolic numbers
DATA        the numbers inside: answered where they are known, and refused where they are not
ADDRESSES   where the data lies: nowhere
SHAPES      functions whose results have as many elements as the data says
HOOKS       what autograd will call: no part of a graph
CONVERSIONS functions that return their argument itself where it is already what they make of it
COUNTED     functions that return as many tensors as the sizes say
RANKED      functions whose results have as many dimensions as the sizes say
RANKS       questions whose answers say how many dimensions there are
"""

PROPERTIES = frozenset(
    """dim ndim dtype layout is_floating_point is_complex is_signed element_size itemsize is_sparse
    is_quantized is_mkldnn is_nested is_sparse_csr is_neg is_conj is_inference is_tensor result_type
    can_cast promote_types get_default_dtype names has_names __hash__ _version grad_fn
    output_nr retains_grad _backward_hooks _base name grad __repr__ __str__ __format__
    __dir__ is_xla is_mps is_xpu is_vulkan is_ipu is_hpu is_maia is_mtia is_ort dense_dim sparse_dim
    is_shared is_pinned __deepcopy__ finfo iinfo is_storage _is_view _is_zerotensor qscheme
    ndimension _grad volatile _post_accumulate_grad_hooks __class__ is_distributed""".split()
)
SIZES = frozenset("shape size __len__ numel nelement".split())
DATA = frozenset(
    """__bool__ item __int__ __float__ __index__ __complex__ tolist numpy __array__ __contains__
    equal allclose is_nonzero __nonzero__ __long__ _local_scalar_dense""".split()
)
ADDRESSES = frozenset(
    """data_ptr storage untyped_storage typed_storage _typed_storage is_set_to set_ __dlpack__
    __cuda_array_interface__ __array_interface__ share_memory_ pin_memory _storage""".split()
)
SHAPES = frozenset(
    """nonzero masked_select unique unique_consecutive bincount argwhere nonzero_static histogramdd
    repeat_interleave combinations where __getitem__ __setitem__ _unique2 unique_dim one_hot
    multinomial""".split()
)
CONVERSIONS = frozenset(
    """to type_as float double half bfloat16 int long short char byte bool cfloat cdouble chalf cpu
    cuda contiguous""".split()
)
HOOKS = frozenset(["register_hook", "register_post_accumulate_grad_hook"])
COUNTED = frozenset(
    """unbind split chunk tensor_split hsplit vsplit dsplit split_with_sizes unsafe_split
    unsafe_chunk meshgrid""".split()
)
RANKED = frozenset("squeeze squeeze_ squeeze_copy".split())
RANKS = frozenset("dim ndim ndimension dense_dim shape size".split())
# Of an input that the model was not traced with: these hold for one sample alone.
ANSWERS = (bool, int, float, complex, str, type(None))
