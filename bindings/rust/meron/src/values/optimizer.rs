// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/optimizer.h.

use meron_sys as sys;

/// A state of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum State {
    /// F32 values; the param itself if that is f32.
    Master,
    /// Average of the gradients; Lion's, and SGD's momentum.
    ExpAvg,
    /// Average of their squares; Adagrad's sum of them.
    ExpAvgSq,
}

#[allow(dead_code)]
impl State {
    pub(crate) fn code(self) -> sys::meron_optimizer_state {
        match self {
            State::Master => sys::MERON_OPTIMIZER_STATE_MASTER,
            State::ExpAvg => sys::MERON_OPTIMIZER_STATE_EXP_AVG,
            State::ExpAvgSq => sys::MERON_OPTIMIZER_STATE_EXP_AVG_SQ,
        }
    }

    pub(crate) fn of(code: sys::meron_optimizer_state) -> State {
        match code {
            sys::MERON_OPTIMIZER_STATE_MASTER => State::Master,
            sys::MERON_OPTIMIZER_STATE_EXP_AVG => State::ExpAvg,
            _ => State::ExpAvgSq,
        }
    }
}

/// Hyperparameters of the params of one group. The rule ignores those that it does not use.
/// The defaults are AdamW's: for an optimizer of another rule, start from one of its groups.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OptimizerGroup {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1. SGD: the momentum, 0 in all groups or in none.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Adagrad: \>= 0; else 0.
    pub lr_decay: f64,
    pub(crate) defaults_of: u32,
}

impl Default for OptimizerGroup {
    fn default() -> OptimizerGroup {
        OptimizerGroup {
            learning_rate: 0.001,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-08,
            weight_decay: 0.01,
            lr_decay: 0.0,
            defaults_of: sys::MERON_OPTIMIZER_GROUP_INIT.defaults_of,
        }
    }
}

impl OptimizerGroup {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> OptimizerGroup {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1. SGD: the momentum, 0 in all groups or in none.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> OptimizerGroup {
        self.beta1 = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> OptimizerGroup {
        self.beta2 = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> OptimizerGroup {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> OptimizerGroup {
        self.weight_decay = value;
        self
    }

    /// Adagrad: \>= 0; else 0.
    #[must_use]
    pub fn lr_decay(mut self, value: f64) -> OptimizerGroup {
        self.lr_decay = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_group {
        sys::meron_optimizer_group {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            lr_decay: self.lr_decay,
            defaults_of: self.defaults_of,
            ..sys::MERON_OPTIMIZER_GROUP_INIT
        }
    }
}

impl OptimizerGroup {
    pub(crate) fn of(raw: &sys::meron_optimizer_group) -> OptimizerGroup {
        OptimizerGroup {
            learning_rate: raw.learning_rate,
            beta1: raw.beta1,
            beta2: raw.beta2,
            epsilon: raw.epsilon,
            weight_decay: raw.weight_decay,
            lr_decay: raw.lr_decay,
            defaults_of: raw.defaults_of,
        }
    }
}

/// Information about an optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct OptimizerInfo {
    /// Taken so far, with those of meron_optimizer_set_steps and of a loaded checkpoint; without
    /// steps that ended in MERON_E_NONFINITE.
    pub steps: u64,
    /// 2-norm of all gradients of the last step, before clipping.
    pub norm: f64,
    /// Of group 0.
    pub learning_rate: f64,
    /// Of params, at least 1.
    pub groups: u32,
    /// Of the rule per element, besides the master.
    pub states: u32,
    /// Of this rank's states on tier nvme.
    pub nvme_bytes: u64,
    /// Of the states that meron_optimizer_offload has moved to a drive.
    pub offloaded_bytes: u64,
}

impl OptimizerInfo {
    pub(crate) fn of(raw: &sys::meron_optimizer_info) -> OptimizerInfo {
        OptimizerInfo {
            steps: raw.steps,
            norm: raw.norm,
            learning_rate: raw.learning_rate,
            groups: raw.groups,
            states: raw.states,
            nvme_bytes: raw.nvme_bytes,
            offloaded_bytes: raw.offloaded_bytes,
        }
    }
}

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdamW {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW {
            learning_rate: 0.001,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-08,
            weight_decay: 0.01,
            max_norm: 0.0,
        }
    }
}

impl AdamW {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> AdamW {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> AdamW {
        self.beta1 = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> AdamW {
        self.beta2 = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> AdamW {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> AdamW {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> AdamW {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_ADAMW_INIT
        }
    }
}

/// Adam (Kingma and Ba, arXiv 1412.6980); weight decay is part of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adam {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam {
            learning_rate: 0.001,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-08,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Adam {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Adam {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> Adam {
        self.beta1 = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> Adam {
        self.beta2 = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> Adam {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Adam {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Adam {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_ADAM_INIT
        }
    }
}

/// Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011); weight decay is part of the gradient.
/// Keeps the sum of squared gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adagrad {
    /// 0 or more.
    pub learning_rate: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
    /// 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay).
    pub lr_decay: f64,
}

impl Default for Adagrad {
    fn default() -> Adagrad {
        Adagrad {
            learning_rate: 0.01,
            epsilon: 1e-10,
            weight_decay: 0.0,
            max_norm: 0.0,
            lr_decay: 0.0,
        }
    }
}

impl Adagrad {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Adagrad {
        self.learning_rate = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> Adagrad {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Adagrad {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Adagrad {
        self.max_norm = value;
        self
    }

    /// 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay).
    #[must_use]
    pub fn lr_decay(mut self, value: f64) -> Adagrad {
        self.lr_decay = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            lr_decay: self.lr_decay,
            ..sys::MERON_OPTIMIZER_ADAGRAD_INIT
        }
    }
}

/// Lion (Chen et al., arXiv 2302.06675). Keeps an average of gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lion {
    /// 0 or more.
    pub learning_rate: f64,
    /// Of the direction of the update; 0 or more, below 1.
    pub beta1: f64,
    /// Of the stored average; 0 or more, below 1.
    pub beta2: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion {
            learning_rate: 0.0001,
            beta1: 0.9,
            beta2: 0.99,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Lion {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Lion {
        self.learning_rate = value;
        self
    }

    /// Of the direction of the update; 0 or more, below 1.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> Lion {
        self.beta1 = value;
        self
    }

    /// Of the stored average; 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> Lion {
        self.beta2 = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Lion {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Lion {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_LION_INIT
        }
    }
}

/// Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient.
/// With a momentum it keeps an average of gradients; without one, no state.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sgd {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1; beta1 of an optimizer group.
    pub momentum: f64,
    /// Of the gradient that is added to the state; 0 or more, below 1.
    pub dampening: f64,
    /// Nesterov's momentum, which needs a momentum and no dampening.
    pub nesterov: bool,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd {
            learning_rate: 0.001,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Sgd {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Sgd {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1; beta1 of an optimizer group.
    #[must_use]
    pub fn momentum(mut self, value: f64) -> Sgd {
        self.momentum = value;
        self
    }

    /// Of the gradient that is added to the state; 0 or more, below 1.
    #[must_use]
    pub fn dampening(mut self, value: f64) -> Sgd {
        self.dampening = value;
        self
    }

    /// Nesterov's momentum, which needs a momentum and no dampening.
    #[must_use]
    pub fn nesterov(mut self, value: bool) -> Sgd {
        self.nesterov = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Sgd {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Sgd {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.momentum,
            dampening: self.dampening,
            nesterov: u32::from(self.nesterov),
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_SGD_INIT
        }
    }
}
