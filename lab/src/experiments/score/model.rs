//! The command line's options for the modelled machine.

use clap::Args;
use thermocline_lab::Machine;
use thermocline_lab::truth::{CPI_NS, Model};

/// The speed of the modelled machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelOptions {
    /// In modelled time: ns an instruction takes while memory does not keep it waiting; one cycle
    /// at 3 GHz.
    #[arg(long, value_name = "NS", default_value_t = CPI_NS, value_parser = number)]
    cpi_ns: f64,
    /// In modelled time: latency of a miss to DRAM and to CXL, ns (default: as the machine's
    /// firmware reports, 100,350).
    #[arg(long, value_name = "DRAM,CXL", value_delimiter = ',', num_args = 1, value_parser = number)]
    latency: Option<Vec<f64>>,
    /// In modelled time: bandwidth of DRAM and of CXL, GB/s, 0 for no limit (default: as the
    /// machine's firmware reports, 200,30).
    #[arg(long, value_name = "DRAM,CXL", value_delimiter = ',', num_args = 1, value_parser = number_or_0)]
    bandwidth: Option<Vec<f64>>,
}

impl ModelOptions {
    /// The model of a machine of one node of DRAM and one of CXL.
    ///
    /// # Errors
    /// When there is not one value for each.
    pub(crate) fn model(&self) -> anyhow::Result<Model> {
        let mut model = Model { cpi_ns: self.cpi_ns, ..Model::of(&Machine::of_sizes(&[0; 2])) };
        for (option, values) in [("--latency", &self.latency), ("--bandwidth", &self.bandwidth)] {
            let Some(values) = values else { continue };
            anyhow::ensure!(
                values.len() == model.nodes.len(),
                "{option} has {} values: give one for DRAM and one for CXL, as in {option} 100,350",
                values.len()
            );
            for (node, &value) in model.nodes.iter_mut().zip(values) {
                match option {
                    "--latency" => node.latency_ns = value,
                    _ => node.bandwidth_gbps = value,
                }
            }
        }
        Ok(model)
    }
}

/// The plugin's range of ns: a thousandth to a thousand.
fn number(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.001..=1000.0).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is not a number from 0.001 to 1000")),
    }
}

fn number_or_0(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) { Ok(0.0) } else { number(text) }
}
