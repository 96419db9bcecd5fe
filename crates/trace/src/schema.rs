//! The tables of a recording: names, columns, units and meaning.

mod tables;

pub use tables::TABLES;

/// The version of the schema. A column that is added keeps it; one that moves, goes or changes its
/// meaning raises it.
pub const VERSION: u32 = 1;

/// What a column holds, and how it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned, 64 bits, close to the value of the row before: kept as differences.
    Near,
    /// Signed, 64 bits, likewise.
    NearSigned,
    /// Unsigned, 64 bits, with few different values: kept as a dictionary.
    Wide,
    /// Signed, 64 bits, likewise.
    WideSigned,
    /// Unsigned, 32 bits, likewise.
    Number,
    /// True or false.
    Flag,
    /// Text of few different values.
    Text,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a row may have no value: what was not known, or does not apply.
    pub nullable: bool,
    /// Its unit; empty for names and numbers of things.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl Column {
    const fn new(name: &'static str, kind: Kind, unit: &'static str, meaning: &'static str) -> Column {
        Column { name, kind, nullable: false, unit, meaning }
    }

    const fn or_null(self) -> Column {
        Column { nullable: true, ..self }
    }
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name, with which the names of its files begin.
    pub name: &'static str,
    /// What a row is.
    pub meaning: &'static str,
    /// Its columns. The first is the event that the row belongs to.
    pub columns: &'static [Column],
}

/// Names a table by its place in [`TABLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is described in `TABLES`")]
pub enum TableId {
    Events,
    Steps,
    Accesses,
    Answers,
    Regions,
    RegionCounts,
    RegionPages,
    Memory,
    Topology,
    Processes,
    Outcomes,
    Demoted,
    Holdings,
    Pressures,
    Scans,
    Programs,
    Nodes,
    Moves,
    Demands,
    Decisions,
    Settings,
    Losses,
}

impl TableId {
    /// Every table, in the order of [`TABLES`].
    pub const ALL: [TableId; TABLES.len()] = {
        use TableId::*;
        [
            Events,
            Steps,
            Accesses,
            Answers,
            Regions,
            RegionCounts,
            RegionPages,
            Memory,
            Topology,
            Processes,
            Outcomes,
            Demoted,
            Holdings,
            Pressures,
            Scans,
            Programs,
            Nodes,
            Moves,
            Demands,
            Decisions,
            Settings,
            Losses,
        ]
    };

    /// The table.
    pub fn table(self) -> &'static Table {
        &TABLES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_table_begins_with_its_event() {
        for (i, table) in TABLES.iter().enumerate() {
            assert_eq!(
                (table.columns[0].name, table.columns[0].nullable),
                ("event", false),
                "{}",
                table.name
            );
            assert!(TABLES[..i].iter().all(|other| other.name != table.name));
            for (j, column) in table.columns.iter().enumerate() {
                assert!(table.columns[..j].iter().all(|other| other.name != column.name), "{column:?}");
                assert!(column.meaning.ends_with('.'), "{column:?}");
            }
        }
        assert!(TableId::ALL.iter().enumerate().all(|(place, id)| *id as usize == place));
        assert_eq!(TableId::Losses as usize + 1, TABLES.len());
        assert_eq!(TableId::Demands.table().name, "demands");
        assert_eq!(TableId::Nodes.table().name, "nodes");
    }
}
