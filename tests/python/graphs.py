# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Graphs written by hand, for tests that need no PyTorch."""


def mlp_text(layers=6, width=512, batch=8, training=False):
    """Equal linear layers, one after the other, each in a module of its own."""
    mode, grad = (" training", " grad") if training else ("", "")
    lines = ["kerf-graph 1.0", f'graph "mlp"{mode}', f"batch {batch}"]
    lines += [f'scope {i + 1} "layers.{i}" "Linear"' for i in range(layers)]
    lines += [f'input %x: f32[B, {width}] = "args.0"']
    lines += [
        f'weight @w{i}: f32[{width}, {width}]{grad} = parameter "layers.{i}.weight"'
        for i in range(layers)
    ]
    previous = "%x"
    for i in range(layers):
        call = f"aten.linear.default({previous}, @w{i})"
        lines.append(f"%h{i}: f32[B, {width}]{grad} = {call} ; scope={i + 1}")
        previous = f"%h{i}"
    lines.append(f'output "y" = {previous}')
    return "\n".join(lines) + "\n"


def random_text(rng, num_nodes):
    """Sums of what came before, at random; what nobody reads is a result."""
    lines = ["kerf-graph 1.0", 'graph "random"', "batch 2", 'input %x: f32[B, 4] = "args.0"']
    values, read = ["%x"], set()
    for i in range(num_nodes):
        a, b = rng.choice(values[-6:]), rng.choice(values)
        read |= {a, b}
        lines.append(f"%v{i}: f32[B, 4] = aten.add.Tensor({a}, {b})")
        values.append(f"%v{i}")
    results = [v for v in values[1:] if v not in read]
    lines += [f'output "y{i}" = {v}' for i, v in enumerate(results)]
    return "\n".join(lines) + "\n"
