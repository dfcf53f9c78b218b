//! One frame: its bytes, and the fields in them before they mean anything.

/// Bytes of one frame.
pub const FRAME_LEN: usize = 32;

/// Version of this protocol, the third byte of [`FromGuard::Hello`](super::FromGuard::Hello).
pub const VERSION: u8 = 6;

/// One frame as it goes over the socket.
pub type Frame = [u8; FRAME_LEN];

/// A frame that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The kind is not one of this direction.
    #[error("unknown frame kind {0}: are keeper and guard of one release?")]
    Kind(u8),
    /// Flags, a reserved byte or the argument are not what this kind may have.
    #[error("a frame of kind {0} with contents that it cannot have: are keeper and guard of one release?")]
    Contents(u8),
    #[error("the guard speaks version {0} of the protocol, the keeper version {VERSION}")]
    Version(u8),
}

/// The fields of a frame before they mean anything.
#[derive(Default)]
pub(super) struct Fields {
    pub kind: u8,
    pub flags: u8,
    pub version: u8,
    pub argument: u32,
    pub token: i64,
    pub first: u64,
    pub second: u64,
}

impl Fields {
    pub(crate) fn write(&self) -> Frame {
        let mut frame = [0; FRAME_LEN];
        frame[0] = self.kind;
        frame[1] = self.flags;
        frame[2] = self.version;
        frame[4..8].copy_from_slice(&self.argument.to_le_bytes());
        frame[8..16].copy_from_slice(&self.token.to_le_bytes());
        frame[16..24].copy_from_slice(&self.first.to_le_bytes());
        frame[24..32].copy_from_slice(&self.second.to_le_bytes());
        frame
    }

    pub(crate) fn read(frame: &Frame) -> Result<Self, FrameError> {
        if frame[3] != 0 {
            return Err(FrameError::Contents(frame[0]));
        }
        let eight = |at: usize| -> [u8; 8] { std::array::from_fn(|i| frame[at + i]) };
        Ok(Self {
            kind: frame[0],
            flags: frame[1],
            version: frame[2],
            argument: u32::from_le_bytes(std::array::from_fn(|i| frame[4 + i])),
            token: i64::from_le_bytes(eight(8)),
            first: u64::from_le_bytes(eight(16)),
            second: u64::from_le_bytes(eight(24)),
        })
    }

    /// The argument, where it is an exit code or a signal.
    pub(crate) fn byte(&self) -> Result<u8, FrameError> {
        u8::try_from(self.argument).map_err(|_| FrameError::Contents(self.kind))
    }
}
