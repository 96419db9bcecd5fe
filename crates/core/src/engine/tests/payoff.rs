//! What a move would gain is said of pages that wait for it.

use super::*;

/// Proposes every page that faults.
#[derive(Debug)]
struct AtFaults;

impl Rule for AtFaults {
    fn name(&self) -> &'static str {
        "at_faults"
    }

    fn on_access(&mut self, access: &Access, _: &mut Record, _: &Context<'_>, out: &mut Candidates) {
        out.push(Candidate::promotion(access, 900, Reason::HighRate, Nanos::from_s(10)));
    }
}

#[test]
fn what_waits_is_explained_by_what_its_move_would_gain() {
    let fault = |vpn| Access { detail: Detail::HintFault { latency: None }, ..access(vpn, 0, 0) };
    let gain = |enabled| {
        let mut config = Config::default();
        config.payoff.enabled = enabled;
        let mut e = Engine::with_rule(&config, topology(), Box::new(AtFaults)).unwrap();
        let batch: Vec<Access> = (0..64).map(fault).collect();
        e.observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
        let told: Vec<_> = (0..64).map(|vpn| e.explain(page(vpn))).collect();
        let held_out = told.iter().filter(|told| told.summary.contains("held_out")).count() as u64;
        assert_eq!(held_out, e.counters().refused.get(R::HeldOut));
        told.iter().filter_map(|told| told.gain).count()
    };
    assert_eq!([true, false].map(gain), [64, 0]);
}
