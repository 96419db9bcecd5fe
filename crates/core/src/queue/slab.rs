//! Storage of the queue: numbered slots, and doubly linked lists threaded through them.

use thermocline_mem::prefetch_all;

use crate::index::Tag;
use crate::queue::{Entry, Turn};
use crate::units::Nanos;

/// No slot.
pub(super) const NIL: u32 = u32::MAX;
/// When a slot without an entry expires. An entry that never does is as good as none.
const NEVER: Nanos = Nanos(u64::MAX);

/// Which of a slot's two lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thread {
    /// Entries of one lane with one rank, oldest first.
    Rank = 0,
    /// Entries of one process.
    Process = 1,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

const UNLINKED: Link = Link { prev: NIL, next: NIL };

/// What going through the lists reads, apart from the entries, which are many times as large.
#[derive(Clone, Copy, Debug)]
struct Place {
    links: [Link; 2],
    /// The entry's turn among those of its lane.
    rank: u32,
    seq: u64,
    /// Of the entry's page.
    tag: Tag,
}

/// A list's ends and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) len: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NIL, tail: NIL, len: 0 };

    pub(super) fn is_empty(self) -> bool {
        self.head == NIL
    }
}

/// Slots; a freed one is reused before a new one is created.
#[derive(Debug, Default)]
pub(super) struct Slab {
    entries: Vec<Option<Entry>>,
    places: Vec<Place>,
    /// When each entry expires; never where there is none.
    expiries: Vec<Nanos>,
    free: Vec<u32>,
}

impl Slab {
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Slots ever created: every entry's number is below it.
    pub(super) fn high(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Option<Entry>>()
            + self.places.capacity() * size_of::<Place>()
            + self.expiries.capacity() * size_of::<Nanos>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Takes an entry whose page has this tag.
    pub(super) fn insert(&mut self, entry: Entry, tag: Tag) -> u32 {
        let expires = entry.admitted.candidate.expires;
        let place = Place { links: [UNLINKED; 2], rank: 0, seq: 0, tag };
        match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = Some(entry);
                self.places[at as usize] = place;
                self.expiries[at as usize] = expires;
                at
            }
            None => {
                self.entries.push(Some(entry));
                self.places.push(place);
                self.expiries.push(expires);
                self.entries.len() as u32 - 1
            }
        }
    }

    /// Puts another entry in the place of one.
    pub(super) fn replace(&mut self, at: u32, entry: Entry) {
        self.expiries[at as usize] = entry.admitted.candidate.expires;
        self.entries[at as usize] = Some(entry);
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<Entry> {
        let entry = self.entries.get_mut(at as usize)?.take()?;
        self.expiries[at as usize] = NEVER;
        self.free.push(at);
        Some(entry)
    }

    /// The same without its entry, which is large.
    pub(super) fn forget(&mut self, at: u32) {
        self.entries[at as usize] = None;
        self.expiries[at as usize] = NEVER;
        self.free.push(at);
    }

    pub(super) fn get(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)?.as_ref()
    }

    /// Changes an entry, but not when it expires.
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    /// Asks the CPU for an entry.
    pub(super) fn prefetch(&self, at: u32) {
        let entry = self.entries.get(at as usize).map(std::slice::from_ref).unwrap_or_default();
        prefetch_all(entry);
    }

    /// Whether the entry has expired at `now`; not where there is none.
    pub(super) fn has_expired(&self, at: u32, now: Nanos) -> bool {
        self.expiries[at as usize] <= now
    }

    /// Sets the turn of an entry.
    pub(super) fn set_turn(&mut self, at: u32, rank: u32, seq: u64) {
        let place = &mut self.places[at as usize];
        (place.rank, place.seq) = (rank, seq);
    }

    /// The tag of an entry's page.
    pub(super) fn tag(&self, at: u32) -> Tag {
        self.places[at as usize].tag
    }

    /// The turn of an entry that was given one.
    pub(super) fn turn(&self, at: u32) -> Turn {
        let Place { rank, seq, .. } = self.places[at as usize];
        Turn { rank, seq, slot: at }
    }

    pub(super) fn next(&self, thread: Thread, at: u32) -> u32 {
        self.places[at as usize].links[thread as usize].next
    }

    /// Appends `at`, which must not be in a list of this thread.
    pub(super) fn push_back(&mut self, list: &mut List, thread: Thread, at: u32) {
        let t = thread as usize;
        self.places[at as usize].links[t] = Link { prev: list.tail, next: NIL };
        if list.tail == NIL {
            list.head = at;
        } else {
            self.places[list.tail as usize].links[t].next = at;
        }
        list.tail = at;
        list.len += 1;
    }

    /// Takes `at`, which must be in `list`, out of it.
    pub(super) fn unlink(&mut self, list: &mut List, thread: Thread, at: u32) {
        let t = thread as usize;
        let Link { prev, next } = self.places[at as usize].links[t];
        if prev == NIL {
            list.head = next;
        } else {
            self.places[prev as usize].links[t].next = next;
        }
        if next == NIL {
            list.tail = prev;
        } else {
            self.places[next as usize].links[t].prev = prev;
        }
        self.places[at as usize].links[t] = UNLINKED;
        list.len -= 1;
    }
}
