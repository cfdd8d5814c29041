#!/usr/bin/env python3
"""Golden numbers for the training kernels, computed by PyTorch in float64.

    python3 tests/peers/environment.py                        makes the environment, prints its interpreter
    target/peers/bin/python models/tests/golden/kernels.py    writes missing files, checks the others

Made with PyTorch 2.15.0; each file's metadata names the version it was made with. Each family of kernels is a
file `NAME.safetensors` beside this script, with tensors called `CASE.TENSOR`. The file's metadata has, under
each case's name, the case's settings as a JSON object, such as `{"kernel": 3, "padding": 1, "stride": 2}`.

Numbers are F64 (in cases whose name ends in `_f32`, F32, to keep them small), indices and labels I64. Inputs
are `golden_file.noise`, which other languages can repeat; all of them are exactly representable in f32.

`grad_output` is the gradient that comes in from above, `grad_X` the gradient of sum(output * grad_output)
with respect to X. What it takes to read the numbers right is written at each family's function.
"""

import sys

import numpy
import torch
from golden_file import Family, disagreements, noise, write
from torch import nn
from torch.nn import functional


def conv2d() -> Family:
    """Cross-correlation: input [n, c, h, w], weight [out, c, kernel, kernel], bias [out] or none."""
    family = Family("conv2d")
    cases = {
        # input, channels out, kernel, stride, padding, bias
        "same3": ((3, 2, 6, 6), 4, 3, 1, 1, True),
        "same5_rectangular": ((3, 1, 8, 5), 3, 5, 1, 2, True),
        "valid5_rectangular": ((3, 2, 7, 9), 2, 5, 1, 0, True),
        "valid3": ((3, 3, 5, 6), 2, 3, 1, 0, True),
        "stride2_even": ((3, 3, 7, 5), 4, 3, 2, 1, True),
        # The stride leaves over one row and no column.
        "stride2_uneven": ((3, 2, 8, 7), 3, 3, 2, 0, True),
        "stride2_wide_padding": ((3, 1, 9, 8), 3, 5, 2, 2, True),
        # Padding of 2 around a kernel of 3: the corners see zeros alone but for one value.
        "padding2": ((3, 2, 4, 3), 2, 3, 1, 2, True),
        "pointwise": ((3, 3, 4, 5), 5, 1, 1, 0, True),
        "pointwise_stride2": ((3, 4, 6, 6), 2, 1, 2, 0, False),
        "no_bias": ((3, 4, 5, 5), 6, 3, 1, 1, False),
        # More channels than a vector register has lanes, and no multiple of them.
        "many_channels_f32": ((1, 17, 3, 5), 19, 3, 1, 1, True),
    }
    for case, (shape, out, kernel, stride, padding, bias) in cases.items():
        settings = {"kernel": kernel, "stride": stride, "padding": padding}

        def function(input, weight, bias=None, stride=stride, padding=padding):
            return functional.conv2d(input, weight, bias, stride=stride, padding=padding)

        weight = family.noise(out, shape[1], kernel, kernel)
        tensors = {
            "input": family.noise(*shape),
            "weight": weight,
            "bias": family.noise(out) if bias else None,
        }
        family.differentiate(case, settings, function, **tensors)
    return family


def grouped_conv2d() -> Family:
    """As conv2d, in groups: weight [out, c / groups, kernel, kernel]."""
    family = Family("grouped_conv2d")
    cases = {
        # input, channels out, kernel, stride, padding, groups, bias
        "depthwise3": ((2, 5, 6, 7), 5, 3, 1, 1, 5, False),
        "depthwise3_stride2": ((2, 4, 7, 6), 4, 3, 2, 1, 4, True),
        "depthwise5": ((2, 3, 6, 6), 3, 5, 1, 2, 3, True),
        "depthwise5_stride2": ((2, 3, 8, 9), 3, 5, 2, 2, 3, False),
        "depthwise_wide_f32": ((1, 2, 6, 37), 2, 3, 1, 1, 2, False),
        "two_outputs_a_channel": ((2, 3, 5, 5), 6, 3, 1, 1, 3, True),
        "two_groups": ((2, 4, 5, 6), 6, 3, 1, 1, 2, True),
        "two_groups_stride2": ((3, 6, 7, 7), 4, 3, 2, 1, 2, False),
        "pointwise": ((2, 6, 4, 5), 9, 1, 1, 0, 3, True),
    }
    for case, (shape, out, kernel, stride, padding, groups, bias) in cases.items():
        settings = {"kernel": kernel, "stride": stride, "padding": padding, "groups": groups}

        def function(input, weight, bias=None, stride=stride, padding=padding, groups=groups):
            return functional.conv2d(input, weight, bias, stride=stride, padding=padding, groups=groups)

        weight = family.noise(out, shape[1] // groups, kernel, kernel)
        tensors = {
            "input": family.noise(*shape),
            "weight": weight,
            "bias": family.noise(out) if bias else None,
        }
        family.differentiate(case, settings, function, **tensors)
    return family


def linear() -> Family:
    """y = x W^T + b. Input [n, features], weight [out, features], bias [out] (absent in one case)."""
    family = Family("linear")
    for case, n, features, out, bias in [
        ("small", 3, 7, 5, True),
        ("wide", 4, 33, 17, True),
        ("one_sample", 1, 16, 8, True),
        ("no_bias", 5, 6, 4, False),
    ]:
        biases = family.noise(out) if bias else None
        tensors = {"input": family.noise(n, features), "weight": family.noise(out, features), "bias": biases}
        family.differentiate(case, {}, functional.linear, **tensors)
    return family


def max_pool2d() -> Family:
    """No padding; rows and columns that fill no window are dropped.

    The first of equal maxima gets the gradient.
    """
    family = Family("max_pool2d")
    for case, shape, kernel, stride in [
        ("size2", (2, 2, 6, 6), 2, 2),
        ("size2_rest", (2, 2, 7, 5), 2, 2),
        ("size3_overlapping", (2, 2, 9, 7), 3, 2),
        ("size3_overlapping_rest", (2, 2, 8, 6), 3, 2),
        ("size3", (2, 2, 6, 9), 3, 3),
        ("ties", (2, 2, 7, 8), 3, 2),
    ]:
        values = family.noise(*shape)
        if case == "ties":
            values = (values * 2).round() + 0.0  # Without negative zeros.
        pool = nn.MaxPool2d(kernel, stride)
        family.differentiate(case, {"kernel": kernel, "stride": stride}, pool, input=values)
    return family


def avg_pool2d() -> Family:
    """No padding; rows and columns that fill no window are dropped."""
    family = Family("avg_pool2d")
    for case, shape, kernel, stride in [
        ("size2", (2, 2, 6, 6), 2, 2),
        ("size2_rest", (2, 2, 7, 5), 2, 2),
        ("size4", (2, 2, 8, 4), 4, 4),
        ("size3_overlapping", (2, 2, 9, 7), 3, 2),
        ("size3_overlapping_rest", (2, 2, 8, 6), 3, 2),
    ]:
        pool = nn.AvgPool2d(kernel, stride)
        settings = {"kernel": kernel, "stride": stride}
        family.differentiate(case, settings, pool, input=family.noise(*shape))
    return family


def relu() -> Family:
    """No gradient passes at zero, which is in the input several times."""
    family = Family("relu")
    values = (family.noise(3, 19) * 4).round() / 4 + 0.0
    family.differentiate("quarters", {}, functional.relu, input=values)
    return family


def activations() -> Family:
    """Functions of each value, at all quarters from -8 to 8, so also at every kink."""
    family = Family("activations")
    for case, function in [
        ("relu6", functional.relu6),
        ("hard-sigmoid", functional.hardsigmoid),
        ("hard-swish", functional.hardswish),
        ("sigmoid", torch.sigmoid),
        ("silu", functional.silu),
        ("gelu", functional.gelu),
    ]:
        quarters = (torch.arange(-32, 33).double() / 4).reshape(5, 13)
        family.differentiate(case, {}, function, input=quarters)
    return family


def batch_norm() -> Family:
    """Over batch, rows and columns, per channel; eps 1e-5 and momentum 0.1 in most cases.

    In training the batch is normalised by its own mean and biased variance; the running variance takes the
    unbiased one: running <- (1 - momentum) running + momentum batch. `running_*_before` and `running_*_after` are around the
    one step. In evaluation the running statistics normalise, and stay.
    """
    family = Family("batch_norm")
    for case, training, epsilon, momentum in [
        ("training", True, 1e-5, 0.1),
        ("evaluation", False, 1e-5, 0.1),
        ("training_with", True, 1e-2, 0.3),
        ("evaluation_with", False, 1e-2, 0.3),
    ]:
        mean, variance = family.noise(3), family.noise(3) + 1.5
        before = {"running_mean_before": mean.clone(), "running_var_before": variance.clone()}

        def function(
            input, weight, bias, mean=mean, variance=variance, settings=(training, momentum, epsilon)
        ):
            return functional.batch_norm(input, mean, variance, weight, bias, *settings)

        tensors = {
            "input": family.noise(4, 3, 5, 4) + 0.5,
            "weight": family.noise(3) + 1,
            "bias": family.noise(3),
        }
        settings = {"training": training, "momentum": momentum, "eps": epsilon}
        family.differentiate(case, settings, function, **tensors)
        after = {"running_mean_after": mean, "running_var_after": variance}
        family.add(case, settings, **before, **after)
    return family


def group_norm() -> Family:
    """Over the channels of a group, rows and columns, per sample; biased variance, eps 1e-5."""
    family = Family("group_norm")
    for case, groups, channels in [
        ("two_groups_of_four", 2, 8),
        ("two_groups_of_two", 2, 4),
        ("one_group", 1, 3),
    ]:
        settings = {"groups": groups, "eps": 1e-5}

        def function(input, weight, bias, groups=groups):
            return functional.group_norm(input, groups, weight, bias, 1e-5)

        shape = (3, channels, 4, 3)
        scale, shift = family.noise(channels) + 1, family.noise(channels)
        family.differentiate(
            case, settings, function, input=family.noise(*shape) + 0.5, weight=scale, bias=shift
        )
    return family


def layer_norm() -> Family:
    """Over the last dimension; biased variance."""
    family = Family("layer_norm")
    for case, shape, epsilon in [("features", (4, 7), 1e-5), ("positions", (2, 5, 19), 1e-6)]:

        def function(input, weight, bias, shape=shape, epsilon=epsilon):
            return functional.layer_norm(input, shape[-1:], weight, bias, epsilon)

        scale, shift = family.noise(shape[-1]) + 1, family.noise(shape[-1])
        family.differentiate(
            case, {"epsilon": epsilon}, function, input=family.noise(*shape) + 0.5, weight=scale, bias=shift
        )
    return family


def simplex_etf() -> Family:
    """Products of the last dimension, at unit length, with a simplex equiangular tight frame, times one factor."""
    family = Family("simplex_etf")
    for case, shape in [("features", (4, 7)), ("positions", (2, 5, 19))]:

        def function(input, weight, classes=shape[-1]):
            frame = torch.eye(classes, dtype=input.dtype) - 1 / classes
            frame = (classes / (classes - 1)) ** 0.5 * frame
            return weight * functional.normalize(input, dim=-1) @ frame

        tensors = {"input": family.noise(*shape), "weight": family.noise(1) + 2}
        family.differentiate(case, {}, function, **tensors)
    return family


def squeeze_excite() -> Family:
    """As torchvision's SqueezeExcitation: fc1 and fc2 are 1x1 convolutions of the channels' means."""
    family = Family("squeeze_excite")
    for case, activation, scale_activation in [
        ("mobilenet", functional.relu, functional.hardsigmoid),
        ("efficientnet", functional.silu, torch.sigmoid),
    ]:

        def function(
            input, weight1, bias1, weight2, bias2, activation=activation, scale_activation=scale_activation
        ):
            squeezed = functional.adaptive_avg_pool2d(input, 1)
            squeezed = activation(functional.conv2d(squeezed, weight1, bias1))
            return input * scale_activation(functional.conv2d(squeezed, weight2, bias2))

        tensors = {
            "input": family.noise(2, 6, 4, 5) + 0.25,
            "weight1": family.noise(3, 6, 1, 1),
            "bias1": family.noise(3),
            "weight2": family.noise(6, 3, 1, 1),
            "bias2": family.noise(6),
        }
        family.differentiate(case, {}, function, **tensors)
    return family


def attention() -> Family:
    """Scaled dot-product attention. Input [n, positions, 3 features]: queries, keys and values of all heads."""
    family = Family("attention")
    for case, shape, heads, causal in [
        ("one_head", (2, 5, 12), 1, False),
        ("heads", (2, 7, 18), 3, False),
        ("causal", (2, 6, 24), 2, True),
        ("many_positions_f32", (1, 37, 12), 2, True),
    ]:

        def function(input, heads=heads, causal=causal):
            n, positions, features = input.shape
            parts = input.reshape(n, positions, 3, heads, features // 3 // heads).permute(2, 0, 3, 1, 4)
            output = functional.scaled_dot_product_attention(*parts, is_causal=causal)
            return output.transpose(1, 2).reshape(n, positions, features // 3)

        settings = {"heads": heads, "causal": causal}
        family.differentiate(case, settings, function, input=family.noise(*shape, scale=2.0))
    return family


def self_attention() -> Family:
    """`torch.nn.MultiheadAttention` with a linear layer before the attention and one after it."""
    family = Family("self_attention")
    features, heads = 8, 2
    layer = nn.MultiheadAttention(features, heads, batch_first=True).double()

    def function(input, weight_in, bias_in, weight_out, bias_out):
        names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
        tensors = dict(zip(names, (weight_in, bias_in, weight_out, bias_out), strict=True))
        return torch.func.functional_call(layer, tensors, (input, input, input), {"need_weights": False})[0]

    family.differentiate(
        "two_heads",
        {"heads": heads},
        function,
        input=family.noise(2, 5, features),
        weight_in=family.noise(3 * features, features),
        bias_in=family.noise(3 * features),
        weight_out=family.noise(features, features),
        bias_out=family.noise(features),
    )
    return family


def positions() -> Family:
    """Layers of a vision transformer around its blocks: a class token and learned positions, or a mean over positions."""
    family = Family("positions")

    def class_token(input, token, positions):
        tokens = input.flatten(2).transpose(1, 2)
        tokens = torch.cat([token.expand(len(tokens), -1, -1), tokens], dim=1) + positions
        return tokens[:, 0] + tokens.mean(1)

    token, table = family.noise(1, 1, 4), family.noise(1, 7, 4)
    family.differentiate("learned", {}, class_token, input=family.noise(2, 4, 2, 3), token=token, positions=table)

    def waves(input):
        position, pair = torch.arange(5).double(), torch.arange(3).double()
        phase = position[:, None] / 10_000 ** (2 * pair / 6)
        return input + torch.stack([phase.sin(), phase.cos()], dim=2).reshape(5, 6)

    family.differentiate("sinusoidal", {}, waves, input=family.noise(2, 5, 6))
    return family


def padded_pool() -> Family:
    """The beginning of a ResNet for large images: rectified, then the maximum over 3x3 with a padding of 1."""
    family = Family("padded_pool")

    def function(input):
        return functional.max_pool2d(functional.relu(input), 3, 2, padding=1)

    family.differentiate("rectified", {}, function, input=family.noise(2, 2, 7, 6))
    return family


def cross_entropy() -> Family:
    """The mean over the batch of -log softmax(logits)[label]; `grad_logits` is the gradient of that mean."""
    family = Family("cross_entropy")
    for case, n, classes, scale in [
        ("small", 4, 5, 2.0),
        ("ten_classes", 7, 10, 4.0),
        ("large_logits", 3, 4, 1024.0),
    ]:
        logits = family.noise(n, classes, scale=scale).requires_grad_()
        labels = torch.arange(n) * 3 % classes
        loss = functional.cross_entropy(logits, labels)
        (grad,) = torch.autograd.grad(loss, [logits])
        family.add(case, {}, logits=logits, labels=labels, loss=loss, grad_logits=grad)
    return family


def value_losses() -> Family:
    """The losses of tasks whose targets are numbers: the mean over all outputs and its gradient."""
    family = Family("value_losses")
    shape = (5, 3)
    for case, scale, function in [
        ("binary_cross_entropy", 6.0, functional.binary_cross_entropy_with_logits),
        ("squared_error", 3.0, functional.mse_loss),
        ("huber", 3.0, lambda outputs, targets: functional.huber_loss(outputs, targets, delta=0.75)),
    ]:
        outputs = family.noise(*shape, scale=scale).requires_grad_()
        targets = family.noise(*shape)
        targets = (targets > 0).double() if case == "binary_cross_entropy" else targets
        loss = function(outputs, targets)
        (grad,) = torch.autograd.grad(loss, [outputs])
        family.add(case, {}, outputs=outputs, targets=targets, loss=loss, grad_outputs=grad)
    return family


def embedding() -> Family:
    """Rows of a table, some of them more than once and some never."""
    family = Family("embedding")
    indices = torch.tensor([[6, 0, 2, 2, 5], [2, 1, 0, 6, 6]])
    weight = family.noise(7, 4)

    def function(indices, weight):
        return functional.embedding(indices, weight)

    family.differentiate("repeated", {}, function, indices=indices, weight=weight)
    return family


def lstm() -> Family:
    """`torch.nn.LSTM` with `batch_first`.

    Input is [n, time, features], output [n, time, hidden] of the last layer, states are [layers, n, hidden].
    The gates lie in the order i, f, g, o: `weight_ih_l0` is [4 hidden, features], `weight_hh_l0` [4 hidden,
    hidden]. There are two bias vectors per layer, `bias_ih_l0` and `bias_hh_l0`, which are only ever added to
    each other, so that their gradients are equal.

        gates = W_ih x + b_ih + W_hh h + b_hh
        c' = sigmoid(f) c + sigmoid(i) tanh(g)
        h' = sigmoid(o) tanh(c')

    Gradients are those of sum(output * grad_output), in the case `states` plus sum(h_n * grad_h_n) and
    sum(c_n * grad_c_n) of the final states. Without `h_0` and `c_0` the initial states are zero.
    """
    family = Family("lstm")
    for case, layers, n, steps, features, hidden in [
        ("two_layers", 2, 2, 5, 3, 4),
        ("states", 2, 2, 5, 3, 4),
        ("one_layer_f32", 1, 3, 4, 5, 17),
    ]:
        network = nn.LSTM(features, hidden, num_layers=layers, batch_first=True).double()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(family.noise(*parameter.shape, scale=0.5))
        inputs = {"input": family.noise(n, steps, features).requires_grad_()}
        if case == "states":
            inputs["h_0"] = family.noise(layers, n, hidden).requires_grad_()
            inputs["c_0"] = family.noise(layers, n, hidden).requires_grad_()
        output, (h_n, c_n) = network(inputs["input"], tuple(inputs.values())[1:] or None)
        results = {"output": output, "h_n": h_n, "c_n": c_n}
        given = {"grad_output": family.noise(*output.shape)}
        if case == "states":
            given |= {f"grad_{name}": family.noise(*h_n.shape) for name in ("h_n", "c_n")}
        loss = sum((results[name.removeprefix("grad_")] * grad).sum() for name, grad in given.items())
        leaves = {**inputs, **dict(network.named_parameters())}
        grads = torch.autograd.grad(loss, list(leaves.values()))
        named = {f"grad_{name}": grad for name, grad in zip(leaves, grads, strict=True)}
        family.add(case, {"layers": layers, "hidden": hidden}, **leaves, **results, **given, **named)
    return family


def local_response_norm() -> Family:
    """x / (k + alpha / size * sum of squares over `size` neighbouring channels)^beta.

    PyTorch divides alpha by the size; others do not. With the usual alpha of 1e-4 the output is nearly the
    input; the second case has one that shows.
    """
    family = Family("local_response_norm")
    for case, alpha, k in [("usual", 1e-4, 1.0), ("strong", 2.0, 0.5)]:
        layer = nn.LocalResponseNorm(5, alpha=alpha, beta=0.75, k=k)
        settings = {"size": 5, "alpha": alpha, "beta": 0.75, "k": k}
        values = family.noise(2, 7, 3, 4, scale=2.0)
        family.differentiate(case, settings, layer, input=values)
    return family


def optimisers() -> Family:
    """Three steps along the given `gradients` [3, 11].

    `parameters` [4, 11] are from before the first step to after the last.
    """
    family = Family("optimisers")
    for case, kind, settings in [
        ("sgd", torch.optim.SGD, {"lr": 0.1}),
        ("sgd_decay", torch.optim.SGD, {"lr": 0.1, "weight_decay": 5e-4}),
        ("sgd_momentum", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}),
        ("adam", torch.optim.Adam, {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8}),
        ("nesterov", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}),
        ("adam_decay", torch.optim.Adam, {"lr": 0.01, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.1}),
        ("adamw", torch.optim.AdamW, {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}),
    ]:
        parameter = nn.Parameter(family.noise(11))
        gradients = family.noise(3, 11)
        optimiser = kind([parameter], **settings)
        history = [parameter.detach().clone()]
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimiser.step()
            history.append(parameter.detach().clone())
        family.add(case, settings, gradients=gradients, parameters=torch.stack(history))
    return family


def training() -> Family:
    """Three steps of plain SGD, rate 0.1, of `lenet-5` on 1x28x28, on one batch of four.

    The parameters before the first step are not in the file. They are `noise(position, count) * 1 /
    sqrt(fan_in)`, with both factors and their product in f32, where `position` counts the tensors from 0 in
    the order of the registry: `Architecture::initialise` with this noise for a generator. The input is
    `noise(100, 4 * 784)`, the labels are 3, 1, 4, 1.

    `losses` are before each of the steps and after the last. Of each parameter, after the last step, and of
    its gradient in the first: the sum, the sum of squares, and up to 16 values at `indices`.
    """
    family = Family("training")
    network = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ).double()  # fmt: skip
    layers = ["extractor.conv1", "extractor.conv2", "head.fc1", "head.fc2", "head.fc3"]
    names = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    parameters = dict(zip(names, network.parameters(), strict=True))
    with torch.no_grad():
        for position, (name, parameter) in enumerate(parameters.items()):
            weight = parameters[name.replace(".bias", ".weight")]
            bound = numpy.float32(1) / numpy.sqrt(numpy.float32(weight[0].numel()))
            values = noise(position, parameter.numel()) * bound
            parameter.copy_(torch.from_numpy(values).double().reshape(parameter.shape))
    input = torch.from_numpy(noise(100, 4 * 784)).double().reshape(4, 1, 28, 28)
    labels = torch.tensor([3, 1, 4, 1])
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    losses, first = [], {}
    for step in range(4):
        optimiser.zero_grad()
        loss = functional.cross_entropy(network(input), labels)
        losses.append(loss.detach())
        if step == 3:
            break
        loss.backward()
        if step == 0:
            first = {name: parameter.grad.clone() for name, parameter in parameters.items()}
        optimiser.step()
    settings = {"rate": 0.1, "samples": 4, "steps": 3}
    family.add("lenet-5", settings, losses=torch.stack(losses), labels=labels)
    for name, parameter in parameters.items():
        count = parameter.numel()
        indices = torch.tensor(sorted({i * count // 16 for i in range(16)}))
        figures = {f"{name}.indices": indices}
        for what, tensor in [("after", parameter), ("first_gradient", first[name])]:
            values = tensor.detach().flatten()
            figures[f"{name}.{what}.sum"] = values.sum()
            figures[f"{name}.{what}.sum_of_squares"] = values.square().sum()
            figures[f"{name}.{what}.values"] = values[indices]
        family.add("lenet-5", settings, **figures)
    return family


FAMILIES = [
    conv2d,
    grouped_conv2d,
    linear,
    max_pool2d,
    avg_pool2d,
    relu,
    activations,
    batch_norm,
    group_norm,
    layer_norm,
    simplex_etf,
    squeeze_excite,
    attention,
    self_attention,
    positions,
    padded_pool,
    cross_entropy,
    value_losses,
    embedding,
    lstm,
    local_response_norm,
    optimisers,
    training,
]


def main() -> None:
    torch.set_num_threads(1)
    wrong = 0
    for make in FAMILIES:
        family = make()
        if not family.path.exists():
            write(family)
            print(f"{family.path.name}: written, {family.path.stat().st_size} bytes")
        elif found := disagreements(family):
            wrong += 1
            print(f"{family.path.name}: not what PyTorch {torch.__version__} computes: {'; '.join(found)}")
        else:
            print(f"{family.path.name}: as computed")
    if wrong:
        sys.exit("kernels.py: if these files are to change, delete them and run this again")


if __name__ == "__main__":
    main()
