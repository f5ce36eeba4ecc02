//! How much room the store takes.

use super::address;
use super::fault::translate;
use super::wire::Wire;
use crate::model::error::Result;

/// Bytes of memory that the server uses for everything in it (`used_memory`); of a cluster, one server of
/// it.
pub async fn size(url: &str) -> Result<u64> {
    let (place, options) = address::read(url)?;
    let wire = Wire::open(place, &options).await?;
    let answer = wire.send(redis::cmd("INFO").arg("memory")).await.map_err(translate)?;
    let text: String = redis::from_redis_value(answer).map_err(|error| translate(error.into()))?;
    let bytes =
        text.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    Ok(bytes.unwrap_or_default())
}
