//! Storage of the queue: numbered slots, and doubly linked lists threaded through them.

use crate::queue::Entry;

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

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

#[derive(Debug)]
struct Slot {
    entry: Option<Entry>,
    links: [Link; 2],
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
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slab {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots ever created: every entry's number is below it.
    pub(super) fn high(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<u32>()
    }

    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        let slot = Slot { entry: Some(entry), links: [UNLINKED; 2] };
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<Entry> {
        let entry = self.slots.get_mut(at as usize)?.entry.take()?;
        self.free.push(at);
        Some(entry)
    }

    pub(super) fn get(&self, at: u32) -> Option<&Entry> {
        self.slots.get(at as usize)?.entry.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.slots.get_mut(at as usize)?.entry.as_mut()
    }

    pub(super) fn next(&self, thread: Thread, at: u32) -> u32 {
        self.slots[at as usize].links[thread as usize].next
    }

    /// Appends `at`, which must not be in a list of this thread.
    pub(super) fn push_back(&mut self, list: &mut List, thread: Thread, at: u32) {
        let t = thread as usize;
        self.slots[at as usize].links[t] = Link { prev: list.tail, next: NIL };
        if list.tail == NIL {
            list.head = at;
        } else {
            self.slots[list.tail as usize].links[t].next = at;
        }
        list.tail = at;
        list.len += 1;
    }

    /// Takes `at`, which must be in `list`, out of it.
    pub(super) fn unlink(&mut self, list: &mut List, thread: Thread, at: u32) {
        let t = thread as usize;
        let Link { prev, next } = self.slots[at as usize].links[t];
        if prev == NIL {
            list.head = next;
        } else {
            self.slots[prev as usize].links[t].next = next;
        }
        if next == NIL {
            list.tail = prev;
        } else {
            self.slots[next as usize].links[t].prev = prev;
        }
        self.slots[at as usize].links[t] = UNLINKED;
        list.len -= 1;
    }
}
