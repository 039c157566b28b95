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


def _step(optimiser, call, rate, x, gradient, state, **options):
    """One step; the parameter and its state afterwards."""
    if call.get("epsilon_place", "outside") != "outside":
        raise Unsupported(f"epsilon_place={call.get('epsilon_place')}")
    if torch.compiler.is_compiling():
        raise Unsupported("an optimiser inside a compiled graph")
    parameter = torch.nn.Parameter(x.detach().clone())
    parameter.grad = gradient.detach().clone()
    chosen = {"foreach": IMPLEMENTATION == "foreach"}
    if optimiser is not torch.optim.RMSprop:
        chosen["fused"] = IMPLEMENTATION == "fused"
    elif IMPLEMENTATION == "fused":
        raise Unsupported("RMSprop has no fused implementation")
    step = optimiser([parameter], lr=number(rate), weight_decay=call.get("weight_decay", 0.0), **options, **chosen)
    step.state[parameter].update(
        {name: value.detach().clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()})
    step.step()
    return parameter.detach(), step.state[parameter]


def sgd(call, rate, steps, x, gradient, buffer=None):
    first = number(steps) == 0 and call.get("first_step", "copy") == "copy"
    state = {} if buffer is None else {"momentum_buffer": None if first else buffer}
    x, state = _step(torch.optim.SGD, call, rate, x, gradient, state, momentum=call.get("momentum", 0.0),
                     dampening=call.get("dampening", 0.0), nesterov=bool(call.get("nesterov", 0)))
    return (x,) if buffer is None else (x, state["momentum_buffer"])


def _count(steps):
    return torch.tensor(float(number(steps)))


def rmsprop(call, rate, steps, x, gradient, squares, buffer=None, mean=None):
    state = {"step": _count(steps), "square_avg": squares}
    if buffer is not None:
        state["momentum_buffer"] = buffer
    if mean is not None:
        state["grad_avg"] = mean
    x, state = _step(torch.optim.RMSprop, call, rate, x, gradient, state, alpha=call.get("alpha", 0.9900000095367432),
                     eps=call.get("epsilon", 9.99999993922529e-09), momentum=call.get("momentum", 0.0),
                     centered=bool(call.get("centered", 0)))
    return x, state["square_avg"], state.get("momentum_buffer"), state.get("grad_avg")


def adagrad(call, rate, steps, x, gradient, total):
    x, state = _step(torch.optim.Adagrad, call, rate, x, gradient, {"step": _count(steps), "sum": total},
                     lr_decay=call.get("lr_decay", 0.0), eps=call.get("epsilon", 1.000000013351432e-10))
    return x, state["sum"]


def adam(call, rate, steps, x, gradient, mean, squares, largest=None):
    state = {"step": _count(steps), "exp_avg": mean, "exp_avg_sq": squares}
    if largest is not None:
        state["max_exp_avg_sq"] = largest
    x, state = _step(torch.optim.AdamW if call.get("decoupled", 0) else torch.optim.Adam, call, rate, x, gradient,
                     state, betas=(call.get("beta1", 0.8999999761581421), call.get("beta2", 0.9990000128746033)),
                     eps=call.get("epsilon", 9.99999993922529e-09), amsgrad=largest is not None)
    return x, state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq")


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
    "SGD": sgd, "RMSprop": rmsprop, "Adagrad": adagrad, "Adam": adam,
    "ClipGradientNorm": clip_gradient_norm,
}
