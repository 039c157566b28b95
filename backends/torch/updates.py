"""What a training step computes: losses, optimisers, clipping, batch statistics and dropout, by torch's own calls.

An optimiser's step is one step of torch.optim on one parameter whose state was put there; which of torch's
implementations runs is the worker's option `optimizer`.
"""
import torch
import torch.nn.functional as F

from opdiff_worker import Unsupported

IMPLEMENTATION = "single"  # or foreach, fused


def number(value):
    """A scalar input as a Python number."""
    while isinstance(value, list):
        value, = value
    return value.item() if isinstance(value, torch.Tensor) else value


def reduction(call):
    return call.get("reduction", "mean")


def cross_entropy(call, scores, labels, weights=None):
    ignored = call.get("ignore_index", -100)
    if call.output_count > 1:
        log_prob = F.log_softmax(scores, 1)
        return F.nll_loss(log_prob, labels.long(), weights, ignore_index=ignored, reduction=reduction(call)), log_prob
    return F.cross_entropy(scores, labels.long(), weights, ignore_index=ignored, reduction=reduction(call),
                           label_smoothing=call.get("label_smoothing", 0.0))


def negative_log_likelihood(call, scores, labels, weights=None):
    return F.nll_loss(scores, labels.long(), weights, ignore_index=call.get("ignore_index", -100),
                      reduction=reduction(call))


def binary_cross_entropy(call, scores, target, pos_weight=None):
    return F.binary_cross_entropy_with_logits(scores, target, pos_weight=pos_weight, reduction=reduction(call))


def _count(steps):
    return torch.tensor(float(number(steps)))


class Optimiser:
    """`describe(call, steps, *states)` says what a node means: (class of torch.optim, its options, the state before).
    `states`: the names in torch of what the node's outputs after the first hold."""

    def __init__(self, describe, *states):
        self.describe, self.states = describe, states

    def __call__(self, call, rate, steps, *parameter):
        return self.step(call, rate, steps, [parameter])[0]

    def step(self, call, rate, steps, parameters):
        """One step of one optimiser over all `parameters`, each (value, gradient, *states); of each (value, *states)."""
        if call.get("epsilon_place", "outside") != "outside":
            raise Unsupported(f"epsilon_place={call.get('epsilon_place')}")
        values, described = [], []
        for x, gradient, *states in parameters:
            value = torch.nn.Parameter(x.detach().clone())
            value.grad = gradient.detach().clone()
            values.append(value)
            described.append(self.describe(call, steps, *states))
        kind, options, _ = described[0]
        options.update(weight_decay=call.get("weight_decay", 0.0), foreach=IMPLEMENTATION == "foreach")
        if kind is not torch.optim.RMSprop:
            options["fused"] = IMPLEMENTATION == "fused"
        elif IMPLEMENTATION == "fused":
            raise Unsupported("RMSprop has no fused implementation")
        optimiser = kind(values, lr=number(rate), **options)
        for value, (_, _, before) in zip(values, described):
            optimiser.state[value].update({name: state.detach().clone() if isinstance(state, torch.Tensor) else state
                                           for name, state in before.items()})
        optimiser.step()
        return [(value.detach(), *(optimiser.state[value].get(name) for name in self.states)) for value in values]


def sgd(call, steps, buffer=None):
    first = number(steps) == 0 and call.get("first_step", "copy") == "copy"
    options = {"momentum": call.get("momentum", 0.0), "dampening": call.get("dampening", 0.0),
               "nesterov": bool(call.get("nesterov", 0))}
    return torch.optim.SGD, options, {} if buffer is None else {"momentum_buffer": None if first else buffer}


def rmsprop(call, steps, squares, buffer=None, mean=None):
    state = {"step": _count(steps), "square_avg": squares}
    if buffer is not None:
        state["momentum_buffer"] = buffer
    if mean is not None:
        state["grad_avg"] = mean
    return torch.optim.RMSprop, {"alpha": call.get("alpha", 0.9900000095367432),
                                 "eps": call.get("epsilon", 9.99999993922529e-09),
                                 "momentum": call.get("momentum", 0.0), "centered": bool(call.get("centered", 0))}, state


def adagrad(call, steps, total):
    return torch.optim.Adagrad, {"lr_decay": call.get("lr_decay", 0.0),
                                 "eps": call.get("epsilon", 1.000000013351432e-10)}, {"step": _count(steps), "sum": total}


def adam(call, steps, mean, squares, largest=None):
    state = {"step": _count(steps), "exp_avg": mean, "exp_avg_sq": squares}
    if largest is not None:
        state["max_exp_avg_sq"] = largest
    return torch.optim.AdamW if call.get("decoupled", 0) else torch.optim.Adam, {
        "betas": (call.get("beta1", 0.8999999761581421), call.get("beta2", 0.9990000128746033)),
        "eps": call.get("epsilon", 9.99999993922529e-09), "amsgrad": largest is not None}, state


OPTIMISERS = {
    "SGD": Optimiser(sgd, "momentum_buffer"), "RMSprop": Optimiser(rmsprop, "square_avg", "momentum_buffer", "grad_avg"),
    "Adagrad": Optimiser(adagrad, "sum"), "Adam": Optimiser(adam, "exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
}


class Updates:
    """Updates that differ in their parameters only, as one step of one optimiser: what a training script does. Never
    compiled. `steps`: their worker.Step each."""

    def __init__(self, step):
        self.steps = []
        self.id, self.op, self.call = step.id, step.op, step.call
        self.inputs, self.outputs = [], []
        self.add(step)

    def add(self, step):
        self.steps.append(step)
        self.inputs += step.inputs
        self.outputs += step.outputs

    def takes(self, step):
        """Whether `step`, which comes after these, may be one of them."""
        return step.op == self.op and step.call.attributes == self.call.attributes and \
            len(step.inputs) == len(self.steps[0].inputs) and step.inputs[:2] == self.inputs[:2] and \
            not any(name in self.outputs for name, _ in step.inputs if name)

    @staticmethod
    def of(steps, joined):
        """`steps` with the updates among them as Updates; `joined`: a run of such that may be one as one."""
        result = []
        for step in steps:
            last = result[-1] if result else None
            if joined and isinstance(last, Updates) and last.takes(step):
                last.add(step)
            else:
                result.append(Updates(step) if step.op in OPTIMISERS else step)
        return result

    def __call__(self, values):
        given = [[number if name is None else values[name] for name, number in step.inputs] for step in self.steps]
        rate, count = given[0][:2]
        results = OPTIMISERS[self.op].step(self.call, rate, count, [one[2:] for one in given])
        for step, tensors in zip(self.steps, results):
            values.update({name: tensor for name, tensor in zip(step.outputs, tensors) if name})


def clip_gradient_norm(call, *gradients):
    if "epsilon" in call.attributes or gradients[0].dtype == torch.float64:
        raise Unsupported("clip_grad_norm_ adds 1e-6 and nothing else")
    parameters = [torch.nn.Parameter(torch.empty_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient.detach().clone()
    total = torch.nn.utils.clip_grad_norm_(parameters, call.get("max_norm", 1.0), foreach=IMPLEMENTATION != "single")
    return *(parameter.grad for parameter in parameters), total


def batch_normalization(call, x, scale, bias, mean, variance):
    """With the statistics of the batch; torch's momentum is that of the new value."""
    if call.is_differentiated and call.output_count > 1:
        raise Unsupported("gradients through running statistics")
    mean, variance = mean.detach().clone(), variance.detach().clone()
    try:
        y = F.batch_norm(x, mean, variance, scale, bias, True, 1 - call.get("momentum", 0.8999999761581421),
                         call.get("epsilon", 9.999999747378752e-06))
    except ValueError as error:
        raise Unsupported(str(error))  # one element a channel
    return y, mean, variance


class _GivenMask(torch.autograd.Function):
    """Dropout whose mask was drawn before: torch has the gradient of that only."""

    @staticmethod
    def forward(context, x, mask, scale):
        context.save_for_backward(mask)
        context.scale = scale
        return x * mask * scale

    @staticmethod
    def backward(context, gradient):
        mask, = context.saved_tensors
        return torch.ops.aten.native_dropout_backward(gradient, mask, context.scale), None, None


def dropout(call, x, ratio, mask):
    ratio = 0.5 if ratio is None else number(ratio)
    if mask is None:
        torch.manual_seed(call.get("seed", 0))
        return torch.native_dropout(x, ratio, True)
    if not x.requires_grad:
        raise Unsupported("Dropout with a mask that was drawn before")
    return _GivenMask.apply(x, mask, 1 / (1 - ratio))


BINDINGS = {
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "CrossEntropyLoss": cross_entropy,
    "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "MSELoss": lambda call, x, target: F.mse_loss(x, target, reduction=reduction(call)),
    "L1Loss": lambda call, x, target: F.l1_loss(x, target, reduction=reduction(call)),
    "HuberLoss": lambda call, x, target: F.huber_loss(x, target, reduction=reduction(call), delta=call.get("delta", 1.0)),
    "BCEWithLogitsLoss": binary_cross_entropy,
    **OPTIMISERS,
    "ClipGradientNorm": clip_gradient_norm,
}
