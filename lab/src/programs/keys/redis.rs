//! Redis.

use redis::{Client, Connection};

use super::{Session, TIMEOUT};

/// A connection.
pub(super) struct Redis(Connection);

impl Redis {
    pub(super) fn connect(address: &(String, u16)) -> anyhow::Result<Redis> {
        let connection = Client::open(address.clone())?.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(Redis(connection))
    }
}

impl Session for Redis {
    fn set(&mut self, pairs: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        let mut pipe = redis::pipe();
        for (name, value) in pairs {
            pipe.set(name, value).ignore();
        }
        Ok(pipe.query(&mut self.0)?)
    }

    fn get(&mut self, names: &[String]) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
        let mut pipe = redis::pipe();
        for name in names {
            pipe.get(name);
        }
        Ok(pipe.query(&mut self.0)?)
    }
}
