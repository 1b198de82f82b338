// SPDX-License-Identifier: Apache-2.0
//! A transport over stream sockets: one per pair of ranks. A message is a frame: tag and size, 8 bytes
//! each, then its bytes.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use meron::CustomTransport;

const HEAD: usize = 16;

/// Another rank.
struct Peer {
    stream: UnixStream,
    /// Not written yet, and how many bytes were written before.
    out: VecDeque<u8>,
    written: u64,
    /// Bytes of an incomplete message.
    part: Vec<u8>,
    /// By tag: complete messages without a receive, and receives that wait for one.
    arrived: HashMap<u64, VecDeque<Vec<u8>>>,
    wanted: HashMap<u64, VecDeque<u64>>,
    /// The peer accepts no more bytes. Messages that it sent before it closed can still be read.
    takes_nothing: bool,
    ended: bool,
}

/// A pending request.
enum Request {
    /// Copied to `out`: done when so many bytes are written.
    Send {
        peer: i32,
        end: u64,
    },
    Receive {
        peer: i32,
        message: Option<Vec<u8>>,
    },
}

pub struct Sockets {
    peers: HashMap<i32, Peer>,
    requests: HashMap<u64, Request>,
    last: u64,
}

impl Sockets {
    /// Meets the other ranks: each listens in `folder`, and calls those before it.
    pub fn meet(folder: &Path, rank: i32, ranks: i32, patience: Duration) -> io::Result<Sockets> {
        let path_of = |rank: i32| folder.join(format!("rank-{rank}"));
        let own = path_of(rank);
        let _ = fs::remove_file(&own); // of an earlier run; there may be none
        let listener = UnixListener::bind(&own)?;
        let mut peers = HashMap::new();
        let deadline = Instant::now() + patience;
        for peer in 0..rank {
            let mut stream = loop {
                match UnixStream::connect(path_of(peer)) {
                    Ok(stream) => break stream,
                    Err(error) if Instant::now() > deadline => return Err(error),
                    Err(_) => sleep(Duration::from_millis(1)), // it does not listen yet
                }
            };
            stream.write_all(&rank.to_le_bytes())?;
            peers.insert(peer, Peer::new(stream)?);
        }
        listener.set_nonblocking(true)?;
        while peers.len() + 1 < ranks as usize {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    let mut name = [0; 4];
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(patience))?;
                    stream.read_exact(&mut name)?;
                    peers.insert(i32::from_le_bytes(name), Peer::new(stream)?);
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(Duration::from_millis(1)),
            }
        }
        fs::remove_file(&own)?;
        Ok(Sockets { peers, requests: HashMap::new(), last: 0 })
    }

    fn begin(&mut self, request: Request) -> u64 {
        self.last += 1;
        self.requests.insert(self.last, request);
        self.last
    }

    fn peer(&mut self, rank: i32) -> io::Result<&mut Peer> {
        let unknown =
            || io::Error::new(io::ErrorKind::NotFound, format!("there is no rank {rank}"));
        self.peers.get_mut(&rank).ok_or_else(unknown)
    }

    /// Moves what can be moved to and from a rank.
    fn advance(&mut self, rank: i32) -> io::Result<()> {
        let Sockets { peers, requests, .. } = self;
        if let Some(peer) = peers.get_mut(&rank) {
            peer.flush()?;
            peer.fill()?;
            peer.hand_out(requests);
        }
        Ok(())
    }
}

impl Peer {
    fn new(stream: UnixStream) -> io::Result<Peer> {
        stream.set_nonblocking(true)?;
        Ok(Peer {
            stream,
            out: VecDeque::new(),
            written: 0,
            part: Vec::new(),
            arrived: HashMap::new(),
            wanted: HashMap::new(),
            takes_nothing: false,
            ended: false,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, Interrupted, WouldBlock};
        while !self.out.is_empty() && !self.takes_nothing {
            match self.stream.write(self.out.as_slices().0) {
                Ok(count) => {
                    self.out.drain(..count);
                    self.written += count as u64;
                }
                Err(error) => match error.kind() {
                    WouldBlock => break,
                    Interrupted => {}
                    BrokenPipe | ConnectionReset => self.takes_nothing = true,
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 1 << 16];
        while !self.ended {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(count) => self.part.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.ended = true,
                Err(error) => return Err(error),
            }
        }
        let mut begin = 0;
        while self.part.len() - begin >= HEAD {
            let number = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&self.part[at..at + 8]);
                u64::from_le_bytes(bytes)
            };
            let (tag, size) = (number(begin), number(begin + 8) as usize);
            if self.part.len() - begin - HEAD < size {
                break;
            }
            let message = self.part[begin + HEAD..begin + HEAD + size].to_vec();
            self.arrived.entry(tag).or_default().push_back(message);
            begin += HEAD + size;
        }
        self.part.drain(..begin);
        Ok(())
    }

    /// Gives messages to the receives that wait for them, the oldest to the oldest.
    fn hand_out(&mut self, requests: &mut HashMap<u64, Request>) {
        for (tag, wanted) in &mut self.wanted {
            let arrived = match self.arrived.get_mut(tag) {
                Some(arrived) => arrived,
                None => continue,
            };
            while let (Some(number), false) = (wanted.front(), arrived.is_empty()) {
                if let Some(Request::Receive { message, .. }) = requests.get_mut(number) {
                    *message = arrived.pop_front();
                }
                wanted.pop_front();
            }
        }
        self.wanted.retain(|_, wanted| !wanted.is_empty());
        self.arrived.retain(|_, arrived| !arrived.is_empty());
    }
}

impl CustomTransport for Sockets {
    fn send(&mut self, peer: i32, tag: u64, message: &[u8]) -> io::Result<Option<u64>> {
        let to = self.peer(peer)?;
        to.out.extend(tag.to_le_bytes());
        to.out.extend((message.len() as u64).to_le_bytes());
        to.out.extend(message);
        let end = to.written + to.out.len() as u64;
        to.flush()?;
        Ok(Some(self.begin(Request::Send { peer, end })))
    }

    fn receive(&mut self, peer: i32, tag: u64, _bytes: usize) -> io::Result<Option<u64>> {
        let number = self.begin(Request::Receive { peer, message: None });
        self.peer(peer)?.wanted.entry(tag).or_default().push_back(number);
        Ok(Some(number))
    }

    fn test(&mut self, request: u64, place: &mut [u8]) -> io::Result<Option<usize>> {
        let rank = match self.requests.get(&request) {
            Some(Request::Send { peer, .. } | Request::Receive { peer, .. }) => *peer,
            None => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such request"))
            }
        };
        self.advance(rank)?;
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, format!("rank {rank} is gone"));
        let peer = &self.peers[&rank];
        let size = match &self.requests[&request] {
            Request::Send { end, .. } if peer.written >= *end => 0,
            Request::Send { .. } if peer.takes_nothing => return Err(gone()),
            Request::Receive { message: Some(message), .. } => {
                let too_large =
                    || io::Error::new(io::ErrorKind::InvalidData, "a message is too large");
                place.get_mut(..message.len()).ok_or_else(too_large)?.copy_from_slice(message);
                message.len()
            }
            Request::Receive { .. } if peer.ended => return Err(gone()),
            _ => return Ok(None),
        };
        self.requests.remove(&request);
        Ok(Some(size))
    }

    fn cancel(&mut self, request: u64) {
        if let Some(Request::Receive { peer, .. }) = self.requests.remove(&request) {
            if let Some(peer) = self.peers.get_mut(&peer) {
                peer.wanted.values_mut().for_each(|wanted| wanted.retain(|&one| one != request));
            }
        }
    }

    fn idle(&mut self, timeout: Duration) {
        sleep(timeout.min(Duration::from_micros(200)));
    }

    fn closed(&mut self) {
        self.peers.clear(); // the other ends see that this rank is gone
    }
}
