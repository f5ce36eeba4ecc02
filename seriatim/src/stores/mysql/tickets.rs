//! The tickets of claims and rescues, which can be given up.

use super::error::Try;
use super::sql::{Columns, text};
use super::work::Work;
use crate::contract::GiveUp;
use crate::contract::errors::check_ticket;
use crate::model::NodeId;

/// Locks the node's ticket row until the call ends, so that `give_up` waits for it. Only for calls with a ticket.
pub(super) fn ticket_of(node: &NodeId, ticket: u64) -> String {
    match ticket {
        0 => "SELECT 0".to_owned(),
        _ => {
            let node = super::sql::text(&node.0);
            format!("SELECT given_up FROM seriatim_ticket WHERE node = {node} LOCK IN SHARE MODE")
        }
    }
}

pub(super) async fn hold_ticket(work: &mut Work<'_>, node: &NodeId, ticket: u64) -> Try<()> {
    if ticket > 0 {
        let rows = work.rows(&ticket_of(node, ticket)).await?;
        check_given_up(ticket, rows)?;
    }
    Ok(())
}

pub(super) fn check_given_up(ticket: u64, rows: Vec<mysql_async::Row>) -> Try<()> {
    Ok(check_ticket(ticket, given_up_of(rows)?)?)
}

/// The highest ticket that was given up.
pub(super) fn given_up_of(rows: Vec<mysql_async::Row>) -> Try<u64> {
    let given_up = rows.into_iter().next().map(|row| Columns::of(row).int()).transpose()?;
    Ok(given_up.unwrap_or_default() as u64)
}

/// Waits for running calls, which lock the row shared.
pub(super) async fn give_up(work: &mut Work<'_>, request: &GiveUp) -> Try<()> {
    let (node, ticket) = (text(&request.node.0), request.ticket);
    let sql = format!(
        "INSERT INTO seriatim_ticket (node, given_up) VALUES ({node}, {ticket}) \
         ON DUPLICATE KEY UPDATE given_up = GREATEST(given_up, {ticket})"
    );
    work.run(&sql).await?;
    Ok(())
}
