// SPDX-License-Identifier: Apache-2.0
//! What a case holds on one rank: the objects that it has made, by name.
//!
//! A handle is released by a call of the raw layer, and the object stays: using it is how staleness is
//! tested, and the natural layer has no released objects to use.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use meron::{
    sys, Buffer, Checkpoint, Context, DlpackTensor, Entered, Gather, GatherCopy, Group, Io,
    IoBuffer, IoRequest, Operation, Optimizer, Param, PendingGather, PendingGatherInto, Plan,
    Schedule, Stats, Unit, Update,
};

use crate::failure::{wrong, Failure};

/// A request, and its buffer after the request has returned it.
pub enum Begun {
    Own(IoRequest<Vec<u8>>, Option<Vec<u8>>),
    /// With the name of the buffer, under which the session stores it again.
    Pinned(IoRequest<IoBuffer>, String, usize),
}

/// The rank that runs.
#[derive(Clone)]
pub struct Setup {
    pub rank: i32,
    pub ranks: i32,
    pub transport: String,
    pub job: String,
}

pub enum Full {
    View(Gather),
    Pending(PendingGather),
    Copy(GatherCopy),
    Into(Option<PendingGatherInto>, Vec<String>, Vec<Buffer>),
    /// The same by flats.
    Flats(Option<PendingGatherInto>, Vec<Buffer>),
    /// A copy that was only begun, which the natural layer does not do.
    Raw,
    Gone,
}

pub enum Object {
    Plan(Plan),
    Context(Context),
    Group(Option<Group>),
    Param(Param),
    Unit(Unit),
    Update(Option<Update>, sys::meron_future),
    Gather(Full, sys::meron_future),
    Dlpack(Option<DlpackTensor>),
    Optimizer(Optimizer),
    Schedule((Schedule, Vec<Entered>)),
    Future(Operation),
    Checkpoint(Checkpoint),
    Io(Io),
    IoRequest(Begun),
    /// Not there while a request has it.
    IoBuffer(Option<IoBuffer>, sys::meron_io_buffer),
}

pub struct Session {
    pub setup: Setup,
    pub case: String,
    pub plan: String,
    /// In the order in which they were made.
    objects: Vec<(String, Object)>,
    pub current: String,
    /// The unit that has a param, by the param's handle.
    pub unit_of: HashMap<u64, String>,
    pub stop: Arc<AtomicBool>,
    pub mark: Stats,
    /// Of the case, to be removed.
    pub files: Vec<PathBuf>,
    /// Likewise.
    pub folders: Vec<PathBuf>,
}

macro_rules! find {
    ($name:ident, $kind:ident, $type:ty) => {
        pub fn $name(&mut self, name: &str) -> Result<&mut $type, Failure> {
            match self.object(name)? {
                Object::$kind(thing) => Ok(thing),
                _ => Err(wrong(format!("{name} is of another kind"))),
            }
        }
    };
}

impl Session {
    pub fn new(setup: &Setup, case: &str, plan: &str) -> Session {
        Session {
            setup: setup.clone(),
            case: case.to_string(),
            plan: plan.to_string(),
            objects: Vec::new(),
            current: String::new(),
            unit_of: HashMap::new(),
            stop: Arc::new(AtomicBool::new(false)),
            mark: Stats::default(),
            files: Vec::new(),
            folders: Vec::new(),
        }
    }

    pub fn put(&mut self, name: &str, object: Object) {
        self.objects.push((name.to_string(), object));
    }

    /// The newest of that name.
    pub fn object(&mut self, name: &str) -> Result<&mut Object, Failure> {
        let found = self.objects.iter_mut().rev().find(|(each, _)| each == name);
        found.map(|(_, object)| object).ok_or_else(|| wrong(format!("there is no {name}")))
    }

    pub fn get(&self, name: &str) -> Result<&Object, Failure> {
        let found = self.objects.iter().rev().find(|(each, _)| each == name);
        found.map(|(_, object)| object).ok_or_else(|| wrong(format!("there is no {name}")))
    }

    find!(optimizer, Optimizer, Optimizer);

    pub fn context(&self) -> Result<&Context, Failure> {
        match self.get(&self.current)? {
            Object::Context(context) => Ok(context),
            _ => Err(wrong("there is no context")),
        }
    }

    pub fn plan(&self, name: &str) -> Result<&Plan, Failure> {
        match self.get(name)? {
            Object::Plan(plan) => Ok(plan),
            _ => Err(wrong(format!("{name} is no plan"))),
        }
    }

    pub fn param(&self, name: &str) -> Result<&Param, Failure> {
        match self.get(name)? {
            Object::Param(param) => Ok(param),
            _ => Err(wrong(format!("{name} is no param"))),
        }
    }

    pub fn unit(&self, name: &str) -> Result<&Unit, Failure> {
        match self.get(name)? {
            Object::Unit(unit) => Ok(unit),
            _ => Err(wrong(format!("{name} is no unit"))),
        }
    }

    pub fn units(&self, names: &[&str]) -> Result<Vec<&Unit>, Failure> {
        names.iter().map(|name| self.unit(name)).collect()
    }

    /// A gather or an update, beside a param.
    pub fn with_param(
        &mut self,
        name: &str,
        param: &str,
    ) -> Result<(&mut Object, &Param), Failure> {
        let place = |wanted: &str| {
            let found = self.objects.iter().rposition(|(each, _)| each == wanted);
            found.ok_or_else(|| wrong(format!("there is no {wanted}")))
        };
        let (thing, param_place) = (place(name)?, place(param)?);
        if thing == param_place {
            return Err(wrong(format!("{name} is both")));
        }
        let (low, high) = self.objects.split_at_mut(thing.max(param_place));
        let (low, high) = (&mut low[thing.min(param_place)].1, &mut high[0].1);
        let (thing, param) = if thing < param_place { (low, high) } else { (high, low) };
        match param {
            Object::Param(param) => Ok((thing, param)),
            _ => Err(wrong("that is no param")),
        }
    }

    /// An optimizer, beside some params.
    pub fn optimizer_and_params(
        &mut self,
        name: &str,
        params: &[&str],
    ) -> Result<(&mut Optimizer, Vec<&Param>), Failure> {
        let found = self.objects.iter().rposition(|(each, _)| each == name);
        let place = found.ok_or_else(|| wrong(format!("there is no {name}")))?;
        let (before, rest) = self.objects.split_at_mut(place);
        let (thing, after) = match rest.split_first_mut() {
            Some(((_, Object::Optimizer(optimizer)), after)) => (optimizer, after),
            _ => return Err(wrong(format!("{name} is no optimizer"))),
        };
        let find = |name: &&str| {
            let found =
                after.iter().rev().chain(before.iter().rev()).find(|(each, _)| each == name);
            match found {
                Some((_, Object::Param(param))) => Ok(param),
                _ => Err(wrong(format!("{name} is no param"))),
            }
        };
        let params = params.iter().map(find).collect::<Result<_, _>>()?;
        Ok((thing, params))
    }

    /// The context, beside some optimizers in this order.
    pub fn context_and_optimizers(
        &mut self,
        names: &[&str],
    ) -> Result<(&Context, Vec<&mut Optimizer>), Failure> {
        let mut context = None;
        let mut found: Vec<Option<&mut Optimizer>> = names.iter().map(|_| None).collect();
        for (name, object) in self.objects.iter_mut().rev() {
            match object {
                Object::Context(this) if *name == self.current && context.is_none() => {
                    context = Some(&*this);
                }
                Object::Optimizer(this) => {
                    if let Some(place) = names.iter().position(|each| each == name) {
                        found[place].get_or_insert(this);
                    }
                }
                _ => {}
            }
        }
        let context = context.ok_or_else(|| wrong("there is no context"))?;
        let found: Option<Vec<_>> = found.into_iter().collect();
        Ok((context, found.ok_or_else(|| wrong("there is no such optimizer"))?))
    }

    pub fn group(&self, name: &str) -> Result<&Group, Failure> {
        match self.get(name)? {
            Object::Group(Some(group)) => Ok(group),
            _ => Err(wrong(format!("{name} is no group of this rank"))),
        }
    }

    /// The names of a unit's params, in the order in which they were made.
    pub fn params_of(&self, unit: &str) -> Vec<String> {
        let of_unit = |object: &Object| match object {
            Object::Param(param) => {
                self.unit_of.get(&param.as_raw().id).map(String::as_str) == Some(unit)
            }
            _ => false,
        };
        let found = self.objects.iter().filter(|(_, object)| of_unit(object));
        found.map(|(name, _)| name.clone()).collect()
    }

    /// Drops everything, newest first.
    pub fn end(&mut self) {
        while let Some((_, object)) = self.objects.pop() {
            drop(object);
        }
        for path in self.files.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        for path in self.folders.drain(..) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}
