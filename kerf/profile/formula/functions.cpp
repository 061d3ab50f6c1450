// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Functions of one element that take a polynomial, and softmax.
#include "kerf/profile/formula/pointwise.h"

namespace kerf::formula {

void add_functions(Table& table) {
  // The derivative follows from what is there: exp' = exp, tanh' = 1 - tanh^2, log' = 1 / x.
  table.add({per_output<10>, derivative<2, 1>},
            {"exp",        "exp2",  "expm1", "log",     "log2",  "log10", "log1p", "sqrt",
             "rsqrt",      "tan",   "tanh",  "sigmoid", "atan",  "asin",  "acos",  "softsign",
             "tanhshrink", "logit", "asinh", "acosh",   "atanh", "angle"});
  // It takes another polynomial or two.
  table.add({per_output<10>, derivative<12, 1>},
            {"sin",         "cos",         "elu",
             "selu",        "celu",        "softplus",
             "logsigmoid",  "log_sigmoid", "log_sigmoid_forward",
             "erf",         "erfc",        "sinh",
             "cosh",        "erfinv",      "sinc",
             "digamma",     "lgamma",      "swish",
             "silu",        "i0",          "polygamma",
             "special_entr"});
  table.add({per_output<10>, derivative<22, 1>}, {"gelu", "mish"});
  table.add({per_output<10>, derivative<12, 2>},
            {"pow", "atan2", "logaddexp", "polar", "float_power", "xlogy", "hypot", "logaddexp2",
             "special_xlog1py"});
  table.add({per_output<10>, of_each_input<12, 2>}, {"glu"});  // its input is twice the output
  table.add({per_output<5>, derivative<4, 1>},
            {"softmax", "_softmax", "_safe_softmax", "special_softmax", "gumbel_softmax"});
  table.add({per_output<5>, derivative<13, 1>},
            {"log_softmax", "_log_softmax", "special_log_softmax"});
}

}  // namespace kerf::formula
