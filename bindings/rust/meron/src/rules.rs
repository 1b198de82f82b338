// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Optimizers, by their update rule.

use crate::{Adagrad, Adam, AdamW, Context, Lion, Optimizer, Sgd, Result, Unit};

impl Context {
    /// AdamW (Loshchilov and Hutter, arXiv 1711.05101).
    ///
    /// Creates an optimizer and its states (zero) for the trainable params of some units: the
    /// states of the rule, in the plan's dtype and on its tier, and an f32 master copy if the
    /// params have 16 bits. A master begins with the param's value at this call, and later
    /// updates write it too, so initial values may be written before or after. States on tier
    /// nvme are written once here, so that steps only overwrite existing data; if that takes
    /// long, the log reports the progress. Collective over the units' group.
    ///
    /// Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this
    /// rank's drive if states are on nvme.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::State`,
    /// `ErrorKind::Duplicate`, `ErrorKind::NoMemory`, `ErrorKind::Io`, `ErrorKind::NotFound`,
    /// `ErrorKind::NoSpace`, `ErrorKind::Timeout`, `ErrorKind::PeerDead`,
    /// `ErrorKind::PeerClosed`, `ErrorKind::Mismatch`, `ErrorKind::Aborted`, `ErrorKind::Auth`,
    /// `ErrorKind::Version`.
    pub fn adamw(&self, units: &[&Unit], options: &AdamW) -> Result<Optimizer> {
        Optimizer::create(self.shared(), units, &options.raw())
    }

    /// Adam (Kingma and Ba, arXiv 1412.6980); weight decay is part of the gradient.
    ///
    /// Creates an optimizer and its states (zero) for the trainable params of some units: the
    /// states of the rule, in the plan's dtype and on its tier, and an f32 master copy if the
    /// params have 16 bits. A master begins with the param's value at this call, and later
    /// updates write it too, so initial values may be written before or after. States on tier
    /// nvme are written once here, so that steps only overwrite existing data; if that takes
    /// long, the log reports the progress. Collective over the units' group.
    ///
    /// Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this
    /// rank's drive if states are on nvme.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::State`,
    /// `ErrorKind::Duplicate`, `ErrorKind::NoMemory`, `ErrorKind::Io`, `ErrorKind::NotFound`,
    /// `ErrorKind::NoSpace`, `ErrorKind::Timeout`, `ErrorKind::PeerDead`,
    /// `ErrorKind::PeerClosed`, `ErrorKind::Mismatch`, `ErrorKind::Aborted`, `ErrorKind::Auth`,
    /// `ErrorKind::Version`.
    pub fn adam(&self, units: &[&Unit], options: &Adam) -> Result<Optimizer> {
        Optimizer::create(self.shared(), units, &options.raw())
    }

    /// Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011); weight decay is part of the gradient.
    /// Keeps the sum of squared gradients.
    ///
    /// Creates an optimizer and its states (zero) for the trainable params of some units: the
    /// states of the rule, in the plan's dtype and on its tier, and an f32 master copy if the
    /// params have 16 bits. A master begins with the param's value at this call, and later
    /// updates write it too, so initial values may be written before or after. States on tier
    /// nvme are written once here, so that steps only overwrite existing data; if that takes
    /// long, the log reports the progress. Collective over the units' group.
    ///
    /// Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this
    /// rank's drive if states are on nvme.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::State`,
    /// `ErrorKind::Duplicate`, `ErrorKind::NoMemory`, `ErrorKind::Io`, `ErrorKind::NotFound`,
    /// `ErrorKind::NoSpace`, `ErrorKind::Timeout`, `ErrorKind::PeerDead`,
    /// `ErrorKind::PeerClosed`, `ErrorKind::Mismatch`, `ErrorKind::Aborted`, `ErrorKind::Auth`,
    /// `ErrorKind::Version`.
    pub fn adagrad(&self, units: &[&Unit], options: &Adagrad) -> Result<Optimizer> {
        Optimizer::create(self.shared(), units, &options.raw())
    }

    /// Lion (Chen et al., arXiv 2302.06675). Keeps an average of gradients.
    ///
    /// Creates an optimizer and its states (zero) for the trainable params of some units: the
    /// states of the rule, in the plan's dtype and on its tier, and an f32 master copy if the
    /// params have 16 bits. A master begins with the param's value at this call, and later
    /// updates write it too, so initial values may be written before or after. States on tier
    /// nvme are written once here, so that steps only overwrite existing data; if that takes
    /// long, the log reports the progress. Collective over the units' group.
    ///
    /// Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this
    /// rank's drive if states are on nvme.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::State`,
    /// `ErrorKind::Duplicate`, `ErrorKind::NoMemory`, `ErrorKind::Io`, `ErrorKind::NotFound`,
    /// `ErrorKind::NoSpace`, `ErrorKind::Timeout`, `ErrorKind::PeerDead`,
    /// `ErrorKind::PeerClosed`, `ErrorKind::Mismatch`, `ErrorKind::Aborted`, `ErrorKind::Auth`,
    /// `ErrorKind::Version`.
    pub fn lion(&self, units: &[&Unit], options: &Lion) -> Result<Optimizer> {
        Optimizer::create(self.shared(), units, &options.raw())
    }

    /// Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient.
    /// With a momentum it keeps an average of gradients; without one, no state.
    ///
    /// Creates an optimizer and its states (zero) for the trainable params of some units: the
    /// states of the rule, in the plan's dtype and on its tier, and an f32 master copy if the
    /// params have 16 bits. A master begins with the param's value at this call, and later
    /// updates write it too, so initial values may be written before or after. States on tier
    /// nvme are written once here, so that steps only overwrite existing data; if that takes
    /// long, the log reports the progress. Collective over the units' group.
    ///
    /// Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this
    /// rank's drive if states are on nvme.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::State`,
    /// `ErrorKind::Duplicate`, `ErrorKind::NoMemory`, `ErrorKind::Io`, `ErrorKind::NotFound`,
    /// `ErrorKind::NoSpace`, `ErrorKind::Timeout`, `ErrorKind::PeerDead`,
    /// `ErrorKind::PeerClosed`, `ErrorKind::Mismatch`, `ErrorKind::Aborted`, `ErrorKind::Auth`,
    /// `ErrorKind::Version`.
    pub fn sgd(&self, units: &[&Unit], options: &Sgd) -> Result<Optimizer> {
        Optimizer::create(self.shared(), units, &options.raw())
    }
}
