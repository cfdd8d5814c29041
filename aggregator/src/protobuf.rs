//! Writing of protocol buffers: the few kinds of fields that ONNX and TensorBoard have.
//!
//! Nothing is read, and two dozen messages are written, each in one place: that is less than a generator or a library brings.

/// The content of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

/// How a field's value is spelled.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Delimited = 2,
    Fixed32 = 5,
}

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// An integer; a negative one has ten bytes.
    #[must_use]
    pub(crate) fn integer(mut self, field: u32, value: i64) -> Self {
        self.key(field, Wire::Varint);
        self.varint(value as u64);
        self
    }

    #[must_use]
    pub(crate) fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, Wire::Fixed32);
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub(crate) fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, Wire::Fixed64);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A packed field of doubles.
    #[must_use]
    pub(crate) fn doubles(self, field: u32, values: &[f64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(field, &bytes)
    }

    #[must_use]
    pub(crate) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    #[must_use]
    pub(crate) fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.begin(field, bytes.len());
        self.0.extend(bytes);
        self
    }

    #[must_use]
    pub(crate) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// The beginning of a field of this many bytes, which follow.
    pub(crate) fn begin(&mut self, field: u32, bytes: usize) {
        self.key(field, Wire::Delimited);
        self.varint(bytes as u64);
    }

    /// A field that is a message, behind the others.
    pub(crate) fn add(&mut self, field: u32, message: &Self) {
        self.begin(field, message.0.len());
        self.0.extend(&message.0);
    }

    fn key(&mut self, field: u32, wire: Wire) {
        self.varint(u64::from(field) << 3 | wire as u64);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's documentation, <https://protobuf.dev/programming-guides/encoding>.
    #[test]
    fn fields_have_the_bytes_of_the_documentation() {
        assert_eq!(Message::new().integer(1, 150).as_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").as_bytes(), b"\x12\x07testing");
        let inner = Message::new().integer(1, 150);
        assert_eq!(Message::new().message(3, &inner).as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let minus_two = Message::new().integer(1, -2);
        assert_eq!(minus_two.as_bytes(), [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(Message::new().float(2, 1.0).as_bytes(), [0x15, 0, 0, 0x80, 0x3f]);
        assert_eq!(Message::new().double(1, 1.0).as_bytes(), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::new().doubles(6, &[1.0]).as_bytes(), [0x32, 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::new().integer(20, 1).as_bytes(), [0xa0, 0x01, 0x01]);
    }
}
