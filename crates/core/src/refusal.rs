//! Why a candidate does not move.

use serde::Serialize;

use crate::label::Label;

/// Declares the reasons once: variant, spelling and meaning; the book's table comes from here.
macro_rules! reasons {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, $kind:ident; )*) => {
        /// Why a candidate does not move, or does not move yet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum RefusalReason {
            $( $(#[doc = $doc])+ $variant, )*
        }

        impl RefusalReason {
            /// What the reason means.
            pub fn meaning(self) -> String {
                match self {
                    $( RefusalReason::$variant => [ $( $doc ),+ ].map(str::trim).join(" "), )*
                }
            }

            /// Whether the candidate leaves the queue or stays in it.
            pub const fn effect(self) -> Effect {
                match self {
                    $( RefusalReason::$variant => Effect::$kind, )*
                }
            }
        }

        impl Label for RefusalReason {
            const ALL: &'static [RefusalReason] = &[ $( RefusalReason::$variant ),* ];

            fn name(self) -> &'static str {
                match self {
                    $( RefusalReason::$variant => $name, )*
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// What a reason does to a candidate. Its evidence is kept either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It leaves the queue; new evidence may propose the page again.
    Refused,
    /// It keeps its place in the queue until the reason passes or its evidence is too old.
    Held,
}

reasons! {
    /// No virtual page is known for the frame, or the page's numbers are invalid: the mover cannot
    /// address it.
    NotMovable = "not_movable", Refused;
    /// The configuration switches this direction off.
    DirectionOff = "direction_off", Refused;
    /// The process is in an excluded scope, or scopes are configured and none names it.
    Excluded = "excluded", Refused;
    /// Scopes are configured, and the process has not been examined yet, or not since its last
    /// exec; that takes a second or two.
    Unexamined = "unexamined", Refused;
    /// The scope holds as much of the top tier as its `top_tier_cap_mib` allows, counting pages in
    /// flight.
    ScopeCap = "scope_cap", Refused;
    /// The scope would be left with less of the top tier than its `top_tier_floor_mib`, or is
    /// `never_slow`.
    ScopeFloor = "scope_floor", Refused;
    /// Promotion was proposed for a page that is in the top tier already.
    AlreadyTop = "already_top", Refused;
    /// No node with memory lies in this direction, or the rule named one that does not.
    NoTarget = "no_target", Refused;
    /// The page, or a folio that overlaps it, is in flight in another batch.
    InFlight = "in_flight", Refused;
    /// We moved the page less than `admission.residency_ms` ago.
    Resident = "resident", Refused;
    /// The page was moved back and forth `admission.ping_pong_moves` times within
    /// `admission.ping_pong_window_ms`.
    PingPong = "ping_pong", Refused;
    /// The mover found the page pinned; it is left alone for `admission.quarantine_ms`.
    Pinned = "pinned", Refused;
    /// The kernel does not let us move the page there (permission or cpuset); left alone for
    /// `admission.quarantine_ms`.
    NoPermission = "no_permission", Refused;
    /// The page's mapping, or its process, has a memory policy that says where its pages belong
    /// (see `admission.memory_policies`); left alone for `admission.quarantine_ms`.
    Mempolicy = "mempolicy", Refused;
    /// Several processes map the page and shared pages may not be moved; left alone for
    /// `admission.quarantine_ms`.
    Shared = "shared", Refused;
    /// The outcome of the page's last batch never came; left alone for `admission.quarantine_ms`.
    Lost = "lost", Refused;
    /// Nothing moves in this mode, and the page was reported already; it is reported again after
    /// `admission.quarantine_ms`.
    DryRun = "dry_run", Refused;
    /// The page was busy, or its target full, `queue.retries` times in a row.
    GaveUp = "gave_up", Refused;
    /// One page in 64 stays where it is for `payoff.watch_s`, to show what promoting others like
    /// it gains.
    HeldOut = "held_out", Refused;
    /// Pages of which the rule claims as much have been seen to gain less than a move costs.
    NotWorth = "not_worth", Refused;
    /// The queue is full of candidates with ranks as high, and the source has its share of it.
    QueueFull = "queue_full", Refused;
    /// The evidence was too old when the candidate's turn came.
    Expired = "expired", Refused;
    /// The sliding second's `admission.rate_limit_mbps` is used up.
    RateLimited = "rate_limited", Held;
    /// The scope has used its `rate_share_percent` of the rate limit while other scopes wait.
    ShareExceeded = "share_exceeded", Held;
    /// Room, or the rate limit, is kept for a scope whose candidates wait and that holds less than
    /// its `top_tier_share_mib`; this scope holds its own share already, or has none.
    KeptForShare = "kept_for_share", Held;
    /// It is not known yet what such pages gain, and `payoff.budget_percent` is spent on finding
    /// out.
    BudgetSpent = "budget_spent", Held;
    /// The scope's moves are slowed or stopped, because its memory pressure rose with them or its
    /// pages were moved back and forth; `status` says which.
    Braked = "braked", Held;
    /// The machine has not recently reported the scope's holding of the top tier, so its floor and
    /// cap cannot be enforced.
    ScopeUnknown = "scope_unknown", Held;
    /// No target has memory free above its high watermark and `admission.free_goal_mib`.
    NodeFull = "node_full", Held;
    /// A target has room, but not for a folio of this size: it would be left with less than
    /// `admission.free_goal_mib` above its high watermark.
    BelowGoal = "below_goal", Held;
    /// The machine did not report the state of any target at this tick.
    NodeUnknown = "node_unknown", Held;
    /// `admission.batches_in_flight` batches wait for their outcome.
    BatchesInFlight = "batches_in_flight", Held;
    /// The page was busy, or its target full; it waits for its next try.
    Retry = "retry", Held;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_and_index_agree_with_the_declaration() {
        for (i, reason) in RefusalReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
            assert_eq!(serde_json::to_string(reason).unwrap(), format!("\"{}\"", reason.name()));
            assert!(!reason.meaning().is_empty());
        }
    }
}
