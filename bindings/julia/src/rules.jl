# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
# Optimizers, by their update rule.

export adamw
"""
    adamw(units; learning_rate, beta1, beta2, epsilon, weight_decay, max_norm)

AdamW (Loshchilov and Hutter, arXiv 1711.05101).

Creates an optimizer and its states (zero) for the trainable params of some units: the states of
the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16
bits. A master begins with the param's value at this call, and later updates write it too, so
initial values may be written before or after. States on tier nvme are written once here, so
that steps only overwrite existing data; if that takes long, the log reports the progress.
Collective over the units' group.

- `learning_rate` = 0.001: 0 or more.
- `beta1` = 0.9: 0 or more, below 1.
- `beta2` = 0.999: 0 or more, below 1.
- `epsilon` = 1e-08: above 0.
- `weight_decay` = 0.01: 0 or more.
- `max_norm` = 0.0: gradients are scaled to at most this 2-norm, of all gradients of the
optimizer together, as meron_gradient_clip does; 0: no clipping.

Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this rank's
drive if states are on nvme. Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`,
`MERON_E_STATE`, `MERON_E_DUPLICATE`, `MERON_E_NO_MEMORY`, `MERON_E_IO`, `MERON_E_NOT_FOUND`,
`MERON_E_NO_SPACE`, `MERON_E_TIMEOUT`, `MERON_E_PEER_DEAD`, `MERON_E_PEER_CLOSED`,
`MERON_E_MISMATCH`, `MERON_E_ABORTED`, `MERON_E_AUTH`, `MERON_E_VERSION`.
"""
adamw(units; options...) = make_optimizer(
    units, "adamw", LibMeron.MERON_OPTIMIZER_ADAMW,
    (:learning_rate, :beta1, :beta2, :epsilon, :weight_decay, :max_norm), options)

export adam
"""
    adam(units; learning_rate, beta1, beta2, epsilon, weight_decay, max_norm)

Adam (Kingma and Ba, arXiv 1412.6980); weight decay is part of the gradient.

Creates an optimizer and its states (zero) for the trainable params of some units: the states of
the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16
bits. A master begins with the param's value at this call, and later updates write it too, so
initial values may be written before or after. States on tier nvme are written once here, so
that steps only overwrite existing data; if that takes long, the log reports the progress.
Collective over the units' group.

- `learning_rate` = 0.001: 0 or more.
- `beta1` = 0.9: 0 or more, below 1.
- `beta2` = 0.999: 0 or more, below 1.
- `epsilon` = 1e-08: above 0.
- `weight_decay` = 0.0: 0 or more.
- `max_norm` = 0.0: gradients are scaled to at most this 2-norm, of all gradients of the
optimizer together, as meron_gradient_clip does; 0: no clipping.

Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this rank's
drive if states are on nvme. Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`,
`MERON_E_STATE`, `MERON_E_DUPLICATE`, `MERON_E_NO_MEMORY`, `MERON_E_IO`, `MERON_E_NOT_FOUND`,
`MERON_E_NO_SPACE`, `MERON_E_TIMEOUT`, `MERON_E_PEER_DEAD`, `MERON_E_PEER_CLOSED`,
`MERON_E_MISMATCH`, `MERON_E_ABORTED`, `MERON_E_AUTH`, `MERON_E_VERSION`.
"""
adam(units; options...) = make_optimizer(
    units, "adam", LibMeron.MERON_OPTIMIZER_ADAM,
    (:learning_rate, :beta1, :beta2, :epsilon, :weight_decay, :max_norm), options)

export adagrad
"""
    adagrad(units; learning_rate, epsilon, weight_decay, max_norm, lr_decay)

Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011); weight decay is part of the gradient. Keeps
the sum of squared gradients.

Creates an optimizer and its states (zero) for the trainable params of some units: the states of
the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16
bits. A master begins with the param's value at this call, and later updates write it too, so
initial values may be written before or after. States on tier nvme are written once here, so
that steps only overwrite existing data; if that takes long, the log reports the progress.
Collective over the units' group.

- `learning_rate` = 0.01: 0 or more.
- `epsilon` = 1e-10: above 0.
- `weight_decay` = 0.0: 0 or more.
- `max_norm` = 0.0: gradients are scaled to at most this 2-norm, of all gradients of the
optimizer together, as meron_gradient_clip does; 0: no clipping.
- `lr_decay` = 0.0: 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay).

Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this rank's
drive if states are on nvme. Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`,
`MERON_E_STATE`, `MERON_E_DUPLICATE`, `MERON_E_NO_MEMORY`, `MERON_E_IO`, `MERON_E_NOT_FOUND`,
`MERON_E_NO_SPACE`, `MERON_E_TIMEOUT`, `MERON_E_PEER_DEAD`, `MERON_E_PEER_CLOSED`,
`MERON_E_MISMATCH`, `MERON_E_ABORTED`, `MERON_E_AUTH`, `MERON_E_VERSION`.
"""
adagrad(units; options...) = make_optimizer(
    units, "adagrad", LibMeron.MERON_OPTIMIZER_ADAGRAD,
    (:learning_rate, :epsilon, :weight_decay, :max_norm, :lr_decay), options)

export lion
"""
    lion(units; learning_rate, beta1, beta2, weight_decay, max_norm)

Lion (Chen et al., arXiv 2302.06675). Keeps an average of gradients.

Creates an optimizer and its states (zero) for the trainable params of some units: the states of
the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16
bits. A master begins with the param's value at this call, and later updates write it too, so
initial values may be written before or after. States on tier nvme are written once here, so
that steps only overwrite existing data; if that takes long, the log reports the progress.
Collective over the units' group.

- `learning_rate` = 0.0001: 0 or more.
- `beta1` = 0.9: of the direction of the update; 0 or more, below 1.
- `beta2` = 0.99: of the stored average; 0 or more, below 1.
- `weight_decay` = 0.0: 0 or more.
- `max_norm` = 0.0: gradients are scaled to at most this 2-norm, of all gradients of the
optimizer together, as meron_gradient_clip does; 0: no clipping.

Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this rank's
drive if states are on nvme. Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`,
`MERON_E_STATE`, `MERON_E_DUPLICATE`, `MERON_E_NO_MEMORY`, `MERON_E_IO`, `MERON_E_NOT_FOUND`,
`MERON_E_NO_SPACE`, `MERON_E_TIMEOUT`, `MERON_E_PEER_DEAD`, `MERON_E_PEER_CLOSED`,
`MERON_E_MISMATCH`, `MERON_E_ABORTED`, `MERON_E_AUTH`, `MERON_E_VERSION`.
"""
lion(units; options...) = make_optimizer(
    units, "lion", LibMeron.MERON_OPTIMIZER_LION,
    (:learning_rate, :beta1, :beta2, :weight_decay, :max_norm), options)

export sgd
"""
    sgd(units; learning_rate, momentum, dampening, nesterov, weight_decay, max_norm)

Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient. With a
momentum it keeps an average of gradients; without one, no state.

Creates an optimizer and its states (zero) for the trainable params of some units: the states of
the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16
bits. A master begins with the param's value at this call, and later updates write it too, so
initial values may be written before or after. States on tier nvme are written once here, so
that steps only overwrite existing data; if that takes long, the log reports the progress.
Collective over the units' group.

- `learning_rate` = 0.001: 0 or more.
- `momentum` = 0.0: 0 or more, below 1; beta1 of an optimizer group.
- `dampening` = 0.0: of the gradient that is added to the state; 0 or more, below 1.
- `nesterov` = false: Nesterov's momentum, which needs a momentum and no dampening.
- `weight_decay` = 0.0: 0 or more.
- `max_norm` = 0.0: gradients are scaled to at most this 2-norm, of all gradients of the
optimizer together, as meron_gradient_clip does; 0: no clipping.

Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this rank's
drive if states are on nvme. Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`,
`MERON_E_STATE`, `MERON_E_DUPLICATE`, `MERON_E_NO_MEMORY`, `MERON_E_IO`, `MERON_E_NOT_FOUND`,
`MERON_E_NO_SPACE`, `MERON_E_TIMEOUT`, `MERON_E_PEER_DEAD`, `MERON_E_PEER_CLOSED`,
`MERON_E_MISMATCH`, `MERON_E_ABORTED`, `MERON_E_AUTH`, `MERON_E_VERSION`.
"""
sgd(units; options...) = make_optimizer(
    units, "sgd", LibMeron.MERON_OPTIMIZER_SGD,
    (:learning_rate, :momentum, :dampening, :nesterov, :weight_decay, :max_norm), options)
