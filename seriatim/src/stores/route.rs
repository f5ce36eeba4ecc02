//! Numbers of routes and of classes of ready lanes.
//!
//! A route says who may claim a lane: bound to a node or consumer group (a number that the store gives out; 0: not
//! bound), and of which group. A class is a route and whether there were crashes. Group, bound, crashes, from the
//! highest bits to the lowest: so the classes of a group lie side by side in every index of ready lanes.

use crate::model::group_number;
use crate::model::limits::ROUTES_MAX;

/// The bits of the part that the store gives out.
const BOUND_BITS: u32 = 20;
// A higher number would be taken for that of another group, and its jobs for anybody's.
const _: () = assert!(ROUTES_MAX < 1 << BOUND_BITS);
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

#[cfg(test)]
pub(super) mod tests {
    use super::ROUTES_MAX;
    use crate::contract::{Amend, Change, Push, Store};
    use crate::{ErrorKind, Job};

    /// All numbers but `ROUTES_MAX` are given out.
    pub(in crate::stores) async fn the_last_number_is_given_out_and_no_further_one(
        store: &dyn Store,
    ) {
        let job = |key: &str, node: &str| Job::new("q", &1).unwrap().key(key).node(node);
        let push = async |jobs| store.push(Push { now: None, jobs }).await;
        push(vec![job("1", "last"), job("2", "last")]).await.unwrap();
        let known = push(vec![job("3", "last")]).await.unwrap()[0].job_id;
        let refused = push(vec![job("4", "last"), job("5", "further")]).await.unwrap_err();
        let change = Change::Node(Some("further".into()));
        let unchanged = store.amend(Amend { now: None, job: known, change }).await.unwrap_err();
        for error in [refused, unchanged] {
            let (kind, text) = (error.kind(), error.to_string());
            assert_eq!((kind, error.field()), (ErrorKind::Invalid, Some("node")), "{text}");
            assert!(text.contains(&ROUTES_MAX.to_string()), "{text}");
        }
        push(vec![Job::new("q", &1).unwrap().key("6")]).await.unwrap();
        let stats = store.stats(None).await.unwrap().remove(0);
        assert_eq!((stats.jobs, stats.lanes), (4, 4));
        let options = store.job(known).await.unwrap().unwrap().options;
        assert_eq!(options.unwrap().node.as_deref(), Some("last"));
    }

    #[tokio::test]
    async fn memory_gives_out_the_last_number_and_no_further_one() {
        let store = crate::store::Memory::new();
        store.with_routes(ROUTES_MAX - 1);
        the_last_number_is_given_out_and_no_further_one(&store).await;
    }
}
