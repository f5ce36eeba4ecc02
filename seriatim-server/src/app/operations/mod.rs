//! Operations: actions on many jobs or lanes, chosen by a filter. They are counted first, done in small steps, and can be
//! stopped. Their state is in the notebook of the store, so that every node shows it, and another one goes on if the one
//! that carries it out is gone. To repeat a step is safe.

mod action;
mod book;
mod dead;
mod intent;
mod look;
mod operation;
mod preview;
mod replay;
mod run;
mod wish;

pub(crate) use action::Action;
pub(crate) use book::{Begin, begin, list, list_within, show, stop, take_over};
pub(crate) use operation::{Operation, State};
pub(crate) use preview::{LOOKED_MAX, Preview, Sample, preview};
pub(crate) use run::{Leaving, refuse_running, run};
pub(crate) use wish::{ALL_QUEUES, List, QUEUES_MAX, Wish};
