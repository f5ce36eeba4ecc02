//! The servers that files are copied to: folders, as rsync takes them, and buckets of the S3 protocol.

use serde::{Deserialize, Deserializer};

use super::key::KeyConfig;
use super::text_or_table::{TextOrTable, text_or_table};

/// What follows the region of a bucket in the advice.
const KEYS: &str =
    "access_key = { env = \"ARCHIVE_KEY\" }, secret_key = { env = \"ARCHIVE_SECRET\" }";

/// An entry of `servers`.
#[derive(Clone, Debug)]
pub(crate) enum ServerConfig {
    Folder(String),
    Bucket(BucketConfig),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BucketConfig {
    /// `https://HOST/BUCKET/FOLDER`
    s3: String,
    region: String,
    access_key: KeyConfig,
    secret_key: KeyConfig,
}

/// A bucket, or a folder in it.
#[derive(Clone, Debug)]
pub(crate) struct BucketSettings {
    /// `https://HOST`
    pub(crate) server: String,
    pub(crate) bucket: String,
    /// Without slashes at its ends; may be empty.
    pub(crate) folder: String,
    pub(crate) region: String,
    pub(crate) access_key: KeyConfig,
    pub(crate) secret_key: KeyConfig,
}

impl BucketConfig {
    /// The variables with its keys.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        [&self.access_key, &self.secret_key].into_iter().filter_map(|key| key.env.as_deref())
    }

    pub(super) fn settings(&self) -> Result<BucketSettings, String> {
        let (server, path) = self.parts().ok_or(
            "`s3`: write https://HOST/BUCKET or https://HOST/BUCKET/FOLDER, in letters, digits and . - _ /",
        )?;
        let (bucket, folder) = path.split_once('/').unwrap_or((path, ""));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.region.is_empty() || !self.region.chars().all(is_plain) {
            return Err("`region`: write that of the bucket, as in \"eu-central-1\"; if its server has none, \"us-east-1\"".to_owned());
        }
        for (name, key) in [("access_key", &self.access_key), ("secret_key", &self.secret_key)] {
            key.check(KEYS).map_err(|why| format!("`{name}` {why}"))?;
        }
        Ok(BucketSettings {
            server: server.to_owned(),
            bucket: bucket.to_owned(),
            folder: folder.to_owned(),
            region: self.region.clone(),
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone(),
        })
    }

    /// The server, and the path of the bucket and the folder.
    fn parts(&self) -> Option<(&str, &str)> {
        let (scheme, rest) = self.s3.split_once("://")?;
        let (host, path) = rest.split_once('/')?;
        let path = path.trim_end_matches('/');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_host = |c: char| is_plain(c) || ":[]".contains(c);
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_plain);
        let is_right = matches!(scheme, "http" | "https")
            && !host.is_empty()
            && host.chars().all(is_host)
            && path.split('/').all(is_part);
        is_right.then(|| (&self.s3[..scheme.len() + "://".len() + host.len()], path))
    }
}

impl<'de> Deserialize<'de> for ServerConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expecting = format_args!(
            "\"USER@HOST:/FOLDER\", or for a bucket {{ s3 = \"https://HOST/BUCKET\", region = \"us-east-1\", {KEYS} }}"
        );
        Ok(match text_or_table(from, expecting)? {
            TextOrTable::Text(folder) => Self::Folder(folder),
            TextOrTable::Table(bucket) => Self::Bucket(bucket),
        })
    }
}
