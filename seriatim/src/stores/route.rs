//! Numbers of routes and of classes of ready lanes.
//!
//! A route says who may claim a lane: bound to a node or consumer group (a number that the store gives out; 0: not
//! bound), and of which group. A class is a route and whether there were crashes. Group, bound, crashes, from the
//! highest bits to the lowest: so the classes of a group lie side by side in every index of ready lanes.

use crate::model::group_number;

/// The bits of the part that the store gives out.
const BOUND_BITS: u32 = 20;
/// The bits of a class below the group.
const CLASS_BITS: u32 = BOUND_BITS + 1;

/// The route of lanes that are bound like this, of this group.
pub(in crate::stores) fn route_in(group: Option<&str>, bound: u64) -> u64 {
    group_number(group) << BOUND_BITS | bound
}

/// The part of a route that the store gave out.
pub(in crate::stores) fn bound_of(route: u64) -> u64 {
    route & ((1 << BOUND_BITS) - 1)
}

/// The group of a route.
pub(in crate::stores) fn group_of(route: u64) -> u64 {
    route >> BOUND_BITS
}

/// The group of a class.
pub(in crate::stores) fn group_of_class(class: u64) -> u64 {
    class >> CLASS_BITS
}

/// The first class of a group.
pub(in crate::stores) fn first_class(group: u64) -> u64 {
    group << CLASS_BITS
}

/// The last class of a group.
pub(in crate::stores) fn last_class(group: u64) -> u64 {
    first_class(group + 1) - 1
}
