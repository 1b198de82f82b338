// SPDX-License-Identifier: Apache-2.0
//! Update rules, with the numbers that they take.

use meron_sys as sys;

/// How AdamW (Loshchilov and Hutter, arXiv 1711.05101) updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// 0 or more.
    pub learning_rate: f64,
    /// Decay of the first moment: 0 or more, below 1.
    pub beta1: f64,
    /// Decay of the second moment: 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this global 2-norm; 0 does not clip.
    pub max_norm: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        let initial = sys::MERON_OPTIMIZER_OPTIONS_INIT;
        AdamW {
            learning_rate: initial.learning_rate,
            beta1: initial.beta1,
            beta2: initial.beta2,
            epsilon: initial.epsilon,
            weight_decay: initial.weight_decay,
            max_norm: initial.max_norm,
        }
    }
}

impl AdamW {
    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            kind: sys::MERON_ADAMW,
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_OPTIONS_INIT
        }
    }
}

/// How Adam (Kingma and Ba, arXiv 1412.6980) updates; weight decay is part of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// 0 or more; 1e-3 by default.
    pub learning_rate: f64,
    /// Decay of the first moment: 0 or more, below 1; 0.9 by default.
    pub beta1: f64,
    /// Decay of the second moment: 0 or more, below 1; 0.999 by default.
    pub beta2: f64,
    /// Above 0; 1e-8 by default.
    pub epsilon: f64,
    /// 0 or more; 0 by default.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this global 2-norm; 0, the default, does not clip.
    pub max_norm: f64,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Adam {
    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            kind: sys::MERON_ADAM,
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_OPTIONS_INIT
        }
    }
}

/// How Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011) updates; weight decay is part of the gradient. It
/// keeps the sum of squared gradients, [`State::ExpAvgSq`](crate::State::ExpAvgSq).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// 0 or more; 1e-2 by default.
    pub learning_rate: f64,
    /// Above 0; 1e-10 by default.
    pub epsilon: f64,
    /// 0 or more; 0 by default.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this global 2-norm; 0, the default, does not clip.
    pub max_norm: f64,
}

impl Default for Adagrad {
    fn default() -> Adagrad {
        Adagrad { learning_rate: 1e-2, epsilon: 1e-10, weight_decay: 0.0, max_norm: 0.0 }
    }
}

impl Adagrad {
    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            kind: sys::MERON_ADAGRAD,
            learning_rate: self.learning_rate,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_OPTIONS_INIT
        }
    }
}

/// How Lion (Chen et al., arXiv 2302.06675) updates. It keeps an average of gradients,
/// [`State::ExpAvg`](crate::State::ExpAvg).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// 0 or more; 1e-4 by default.
    pub learning_rate: f64,
    /// Of the direction that is taken: 0 or more, below 1; 0.9 by default.
    pub beta1: f64,
    /// Of the average that is kept: 0 or more, below 1; 0.99 by default.
    pub beta2: f64,
    /// 0 or more; 0 by default.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this global 2-norm; 0, the default, does not clip.
    pub max_norm: f64,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion { learning_rate: 1e-4, beta1: 0.9, beta2: 0.99, weight_decay: 0.0, max_norm: 0.0 }
    }
}

impl Lion {
    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            kind: sys::MERON_LION,
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_OPTIONS_INIT
        }
    }
}

/// How stochastic gradient descent updates, as `torch.optim.SGD`; weight decay is part of the gradient.
/// With a momentum it keeps a state, [`State::ExpAvg`](crate::State::ExpAvg); without, none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// 0 or more; 1e-3 by default.
    pub learning_rate: f64,
    /// 0 or more, below 1; 0 by default. It is `beta1` of a [`ParamGroup`].
    pub momentum: f64,
    /// Of the gradient that is added to the state: 0 or more, below 1; 0 by default.
    pub dampening: f64,
    /// Nesterov's momentum, which needs a momentum and no dampening.
    pub nesterov: bool,
    /// 0 or more; 0 by default.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this global 2-norm; 0, the default, does not clip.
    pub max_norm: f64,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd {
            learning_rate: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Sgd {
    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            kind: sys::MERON_SGD,
            learning_rate: self.learning_rate,
            beta1: self.momentum,
            dampening: self.dampening,
            nesterov: u32::from(self.nesterov),
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_OPTIONS_INIT
        }
    }
}

/// What the params of one group share; numbers that the rule does not use mean nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamGroup {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1. [`Sgd`]: the momentum, 0 in all groups or in none.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
}

impl Default for ParamGroup {
    fn default() -> ParamGroup {
        ParamGroup::of(&sys::MERON_PARAM_GROUP_INIT)
    }
}

impl ParamGroup {
    pub(crate) fn of(raw: &sys::meron_param_group) -> ParamGroup {
        ParamGroup {
            learning_rate: raw.learning_rate,
            beta1: raw.beta1,
            beta2: raw.beta2,
            epsilon: raw.epsilon,
            weight_decay: raw.weight_decay,
        }
    }

    pub(crate) fn raw(&self) -> sys::meron_param_group {
        sys::meron_param_group {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            ..sys::MERON_PARAM_GROUP_INIT
        }
    }
}
