"""Calls of operators in place and of those that are given a number for a tensor, without a rule of their own."""

from __future__ import annotations

from tests.rules.calls import add, bits, call, ints, r
from tests.rules.operators import Case

add("bitwise_and_.Scalar bitwise_or_.Scalar bitwise_xor_.Scalar", lambda: call(ints(7, 3, 5), 5))
add("eq_.Scalar ne_.Scalar lt_.Scalar le_.Scalar gt_.Scalar ge_.Scalar", lambda: call(r(3, 5), 1))
add("copysign_.Scalar floor_divide_.Scalar fmod_.Scalar", lambda: call(r(3, 5), 2.0))
add("logical_xor_.default", lambda: call(bits(3, 5), bits(3, 5)))

add("xlogy_.Scalar_Other", lambda: call(r(3, 5), 2.0))
add("bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar", lambda: call(ints(7, 3, 5), 5))
add("bitwise_and.Scalar_Tensor bitwise_or.Scalar_Tensor bitwise_xor.Scalar_Tensor", lambda: call(5, ints(7, 3, 5)))
add("copysign.Scalar floor_divide.Scalar xlogy.Scalar_Other special_xlog1py.other_scalar", lambda: call(r(3, 5), 2.0))
add("remainder.Scalar_Tensor xlogy.Scalar_Self special_xlog1py.self_scalar", lambda: call(2.0, r(3, 5)))
add("bucketize.Scalar", lambda: call(2.0, r(5)))
add("searchsorted.Scalar", lambda: call(r(5), 2.0))
add("isin.Scalar_Tensor", lambda: call(2.0, r(3, 5)))
add("isin.Tensor_Scalar", lambda: call(r(3, 5), 2.0))
add("linspace.Scalar_Tensor", lambda: call(1.0, r(), 5))
add("linspace.Tensor_Scalar", lambda: call(r(), 1.0, 5))

# Of what is as long as another tensor, the first may be too small for the result.
add("addbmm_.default", lambda: Case((r(3, 7), r(2, 3, 5), r(2, 5, 7)), matmul=2 * 2 * 3 * 5 * 7))
add("addr_.default", lambda: call(r(3, 7), r(3), r(7)))
