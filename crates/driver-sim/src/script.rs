//! How the simulated driver behaves and what goes wrong, as a text: from the environment variable
//! `GPU_DRIVER_SIM` when the library is first called, or later from `gpuDriverSimScript`.
//!
//! Parts are separated by commas or white space. A number `n` of a kernel is its place among the kernels
//! launched on its stream, from 1; a number of a store is the value stored.

/// What a script says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// `devices=<n>`: how many there are; 0 makes the initialisation answer "no device".
    pub devices: u32,
    /// `version=<n>`: the driver's version, as `cuDriverGetVersion` gives it.
    pub version: i32,
    /// `pending=<n>`: operations that a stream holds before a launch blocks its caller.
    pub pending: usize,
    /// `callback_us=<n>`: how long the driver's thread takes to begin a host function.
    pub callback_us: u64,
    /// `query_us=<n>`: how long a query takes.
    pub query_us: u64,
    /// `attribute=<number>:<value>`: device attributes that answer something else.
    pub attributes: Vec<(i32, i32)>,
    /// `refuse=<entry point>:<status>`: entry points that fail.
    pub refuse: Vec<(String, i32)>,
    /// `fault=<n>`: that kernel faults.
    pub fault: Option<u64>,
    /// `fault_code=<status>`: what its context answers from then on.
    pub fault_code: i32,
    /// `hang=<n>`: that kernel never ends.
    pub hang: Option<u64>,
    /// `lost_store=<value>`: that store never lands.
    pub lost_store: Option<u64>,
    /// `late_data=<n>:<us>`: what that kernel computes lands so long after the store behind it.
    pub late_data: Option<(u64, u64)>,
    /// `lie_after_loss`: after a fault events and synchronisation say success; only a query of the stream
    /// tells.
    pub lie_after_loss: bool,
    /// `callback_after_fault`: host functions are called after a fault too.
    pub callback_after_fault: bool,
    /// `dead_stores`: stores are accepted and never land.
    pub dead_stores: bool,
    /// `distinct_addresses`: host memory has another address on the device.
    pub distinct_addresses: bool,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            devices: 1,
            version: 13_000,
            pending: 1_024,
            callback_us: 0,
            query_us: 0,
            attributes: Vec::new(),
            refuse: Vec::new(),
            fault: None,
            fault_code: 700,
            hang: None,
            lost_store: None,
            late_data: None,
            lie_after_loss: false,
            callback_after_fault: false,
            dead_stores: false,
            distinct_addresses: false,
        }
    }
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// The part that means nothing.
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script::default();
        let parts = text.split(|c: char| c == ',' || c.is_whitespace());
        for part in parts.filter(|part| !part.is_empty()) {
            script.apply(part).ok_or_else(|| format!("`{part}` means nothing in a script"))?;
        }
        Ok(script)
    }

    fn apply(&mut self, part: &str) -> Option<()> {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let pair = || value.split_once(':');
        match key {
            "devices" => self.devices = value.parse().ok()?,
            "version" => self.version = value.parse().ok()?,
            "pending" => self.pending = value.parse().ok().filter(|&n| n > 0)?,
            "callback_us" => self.callback_us = value.parse().ok()?,
            "query_us" => self.query_us = value.parse().ok()?,
            "attribute" => {
                let (number, value) = pair()?;
                self.attributes.push((number.parse().ok()?, value.parse().ok()?));
            }
            "refuse" => {
                let (entry, status) = pair()?;
                self.refuse.push((entry.to_owned(), status.parse().ok()?));
            }
            "fault" => self.fault = Some(value.parse().ok()?),
            "fault_code" => self.fault_code = value.parse().ok()?,
            "hang" => self.hang = Some(value.parse().ok()?),
            "lost_store" => self.lost_store = Some(value.parse().ok()?),
            "late_data" => {
                let (kernel, us) = pair()?;
                self.late_data = Some((kernel.parse().ok()?, us.parse().ok()?));
            }
            "lie_after_loss" if value.is_empty() => self.lie_after_loss = true,
            "callback_after_fault" if value.is_empty() => self.callback_after_fault = true,
            "dead_stores" if value.is_empty() => self.dead_stores = true,
            "distinct_addresses" if value.is_empty() => self.distinct_addresses = true,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read_and_nothing_else() {
        let text = "devices=2,version=11020 pending=5,callback_us=20,query_us=3,attribute=122:0,\
                    refuse=cuMemHostAlloc:2,fault=3,fault_code=719,hang=4,lost_store=9,late_data=2:400,\
                    lie_after_loss,callback_after_fault,dead_stores,distinct_addresses";
        let script = Script::parse(text).unwrap();
        assert_eq!((script.devices, script.version, script.pending), (2, 11_020, 5));
        assert_eq!(script.attributes, [(122, 0)]);
        assert_eq!(script.refuse, [("cuMemHostAlloc".to_owned(), 2)]);
        assert_eq!((script.fault, script.fault_code, script.hang), (Some(3), 719, Some(4)));
        assert_eq!((script.lost_store, script.late_data), (Some(9), Some((2, 400))));
        assert!(script.lie_after_loss && script.callback_after_fault);
        assert!(script.dead_stores && script.distinct_addresses);
        assert_eq!(Script::parse("").unwrap(), Script::default());
        for bad in
            ["fault", "fault=x", "devices=-1", "pending=0", "late_data=3", "dead_stores=1", "what"]
        {
            assert!(Script::parse(bad).unwrap_err().contains(bad), "{bad}");
        }
    }
}
