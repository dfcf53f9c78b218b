//! Creates a contender under the agreement of its lock.

use zookeeper_client as zk;

/// Creates a sequential node below a parent whose data have this version, in one transaction. Returns its whole path.
pub(super) async fn create_checked(
    client: &zk::Client,
    prefix: &str,
    data: &[u8],
    options: &zk::CreateOptions<'_>,
    version: i32,
) -> Result<(String, zk::Stat), zk::Error> {
    let parent = prefix.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut writer = client.new_multi_writer();
    writer.add_check_version(parent, version)?;
    writer.add_create(prefix, data, options)?;
    let mut results = match writer.commit().await {
        Ok(results) => results,
        Err(
            zk::MultiWriteError::OperationFailed { source, .. }
            | zk::MultiWriteError::RequestFailed { source },
        ) => {
            return Err(source);
        }
    };
    match results.pop() {
        // Older servers leave the statistics out of a transaction's answer (ZOOKEEPER-4026, ZOOKEEPER-4667).
        Some(zk::MultiWriteResult::Create { path, stat }) if stat.is_invalid() => {
            match client.check_stat(&path).await {
                Ok(Some(stat)) => Ok((path, stat)),
                Err(zk::Error::SessionExpired) => Err(zk::Error::SessionExpired),
                // The node was created. Every other error would say to the caller that it was not: so it is to look for
                // the node, as after a lost answer.
                _ => Err(zk::Error::ConnectionLoss),
            }
        }
        Some(zk::MultiWriteResult::Create { path, stat }) => Ok((path, stat)),
        _ => Err(zk::Error::UnexpectedError(
            "the answer to another request".to_owned(),
        )),
    }
}
