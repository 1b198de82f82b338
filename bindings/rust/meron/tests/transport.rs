// SPDX-License-Identifier: Apache-2.0
//! A transport of the program's own: queues between threads.

mod common;

use std::collections::HashMap;
use std::io;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{modest, Bomb};
use meron::{AdamW, Context, CustomTransport, ErrorKind, Plan, ReduceOp};

type Message = (u64, Vec<u8>);

struct Peer {
    to: Sender<Message>,
    from: Receiver<Message>,
    /// By tag: arrived, and not asked for yet.
    arrived: HashMap<u64, Vec<Vec<u8>>>,
    gone: bool,
}

/// The failure of each send.
#[derive(Clone, Copy, PartialEq)]
enum Fails {
    No,
    /// It panics, with a text or a value that panics again.
    Text,
    Bomb,
    Error,
}

struct Queues {
    peers: HashMap<i32, Peer>,
    /// Receives under way: from whom, and which tag. Sends are done at once.
    receives: HashMap<u64, (i32, u64)>,
    next: u64,
    fails: Fails,
    closed: Arc<AtomicUsize>,
}

impl Queues {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl CustomTransport for Queues {
    fn send(&mut self, peer: i32, tag: u64, message: &[u8]) -> io::Result<Option<u64>> {
        match self.fails {
            Fails::No => {}
            Fails::Text => panic!("the cable is cut"),
            Fails::Bomb => panic_any(Bomb),
            Fails::Error => return Err(io::Error::new(io::ErrorKind::BrokenPipe, "no carrier")),
        }
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the other end is gone");
        self.peers[&peer].to.send((tag, message.to_vec())).map_err(gone)?;
        Ok(Some(self.number()))
    }

    fn receive(&mut self, peer: i32, tag: u64, _bytes: usize) -> io::Result<Option<u64>> {
        let number = self.number();
        self.receives.insert(number, (peer, tag));
        Ok(Some(number))
    }

    fn test(&mut self, request: u64, place: &mut [u8]) -> io::Result<Option<usize>> {
        let (rank, tag) = match self.receives.get(&request) {
            Some(&receive) => receive,
            None => return Ok(Some(0)), // a send
        };
        // The oldest receive of a tag gets the oldest message.
        let turn =
            self.receives.iter().filter(|(_, to)| **to == (rank, tag)).map(|(n, _)| *n).min();
        let peer = self.peers.get_mut(&rank).unwrap();
        loop {
            match peer.from.try_recv() {
                Ok((tag, message)) => peer.arrived.entry(tag).or_default().push(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    peer.gone = true;
                    break;
                }
            }
        }
        let waiting = peer.arrived.entry(tag).or_default();
        if waiting.is_empty() || turn != Some(request) {
            if peer.gone && waiting.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other end is gone"));
            }
            return Ok(None);
        }
        let message = waiting.remove(0);
        self.receives.remove(&request);
        place[..message.len()].copy_from_slice(&message);
        Ok(Some(message.len()))
    }

    fn cancel(&mut self, request: u64) {
        self.receives.remove(&request);
    }

    fn closed(&mut self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// The queues of each rank of a world.
fn world(ranks: i32, closed: &Arc<AtomicUsize>) -> Vec<Queues> {
    let mut all: Vec<Queues> = (0..ranks)
        .map(|_| Queues {
            peers: HashMap::new(),
            receives: HashMap::new(),
            next: 0,
            fails: Fails::No,
            closed: closed.clone(),
        })
        .collect();
    for a in 0..ranks {
        for b in 0..a {
            let ((to_a, at_a), (to_b, at_b)) = (channel(), channel());
            let peer = |to, from| Peer { to, from, arrived: HashMap::new(), gone: false };
            all[a as usize].peers.insert(b, peer(to_b, at_a));
            all[b as usize].peers.insert(a, peer(to_a, at_b));
        }
    }
    all
}

/// Runs `body` as each rank; how many transports were told of the close.
fn over_queues(ranks: i32, plan: &str, body: impl Fn(Context) + Send + Sync + 'static) -> usize {
    let (closed, body) = (Arc::new(AtomicUsize::new(0)), Arc::new(body));
    let threads: Vec<_> = world(ranks, &closed)
        .into_iter()
        .enumerate()
        .map(|(rank, mut queues)| {
            let (body, plan) = (body.clone(), plan.to_string());
            let fails = match plan.as_str() {
                "text" => Some((Fails::Text, "panicked (the cable is cut)")),
                "bomb" => Some((Fails::Bomb, "panicked (with a value that is no text)")),
                "error" => Some((Fails::Error, "no carrier")),
                _ => None,
            };
            if let (Some((fails, _)), 1) = (fails, rank) {
                queues.fails = fails;
            }
            let plan = if fails.is_some() { "zero3".to_string() } else { plan };
            thread::spawn(move || {
                let opened = modest()
                    .rank(rank as i32)
                    .world_size(ranks)
                    .plan(Plan::preset(&plan).unwrap())
                    .timeout(Duration::from_secs(10))
                    .custom("queues", 5000, queues)
                    .unwrap()
                    .open();
                match opened {
                    Ok(context) => body(context),
                    Err(error) => {
                        assert!(error.breaks_group(), "{error:?}");
                        let text = fails.unwrap().1;
                        assert!(rank == 0 || error.message().contains(text), "{error}");
                        let cause = std::error::Error::source(&error).map(|c| c.to_string());
                        assert!(rank == 0 || cause.unwrap().contains(text), "{error}");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    closed.load(Ordering::Relaxed)
}

#[test]
fn ranks_train_over_queues() {
    for plan in ["zero0", "zero1", "zero2", "zero3"] {
        let closed = over_queues(3, plan, |context| {
            assert_eq!(context.transport(), "queues");
            let weight = context.param("weight", &[3000]).unwrap();
            let unit = context.unit("layer", &[&weight]).unwrap();
            let options = AdamW::default().learning_rate(0.5).weight_decay(0.0);
            let mut optimizer = context.adamw(&[&unit], &options).unwrap();
            for step in 1..=3 {
                let mut gradients = unit.gradients().unwrap();
                let mut place = gradients.view(&weight).unwrap();
                place.as_mut_slice::<f32>().unwrap().fill(context.rank() as f32);
                gradients.reduce(&Default::default()).unwrap();
                optimizer.step().unwrap();
                let full = unit.gather().unwrap();
                for value in full.view(&weight).unwrap().to_f32() {
                    assert!((value + 0.5 * step as f32).abs() < 1e-4, "{value}");
                }
            }
            let world = context.world().unwrap();
            let mut sums = [1.0f32; 4];
            world.all_reduce(&mut sums, ReduceOp::Sum).unwrap();
            assert_eq!(sums, [3.0; 4]);
            world.barrier().unwrap();
        });
        assert_eq!(closed, 3);
    }
}

#[test]
fn a_transport_that_fails_is_a_dead_peer() {
    for fails in ["text", "bomb", "error"] {
        let begin = Instant::now();
        over_queues(2, fails, |context| {
            let world = context.world().unwrap();
            let error = world.barrier().unwrap_err();
            assert!(error.breaks_group(), "{error:?}");
            assert_ne!(error.kind(), ErrorKind::Cancelled);
        });
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn names_have_no_nul() {
    let closed = Arc::new(AtomicUsize::new(0));
    let queues = world(1, &closed).pop().unwrap();
    let error = modest().custom("a\0b", 0, queues).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
}
