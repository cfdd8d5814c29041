def conv2d(x, weight, bias=None, stride=1, padding=0):
    """Cross-correlation of [n, c, h, w] with a weight [out, c, k, k]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = sliding_window_view(x, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    y = np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return y if bias is None else y + bias[:, None, None]


def linear(x, weight, bias=None):
    """`x W^T + b` over the last axis."""
    y = x @ weight.T
    return y if bias is None else y + bias


def relu(x):
    """`max(x, 0)`."""
    return np.maximum(x, 0)


def flatten(x):
    """All axes of a sample as one."""
    return x.reshape(len(x), -1)


def max_pool(x, size, stride, partial=False):
    """The maximum over windows, with those that begin in the image and reach beyond it if `partial`."""
    if partial:
        beyond = [(size - side) % stride for side in x.shape[2:]]
        more = [(0, rows if rows < size else 0) for rows in beyond]
        x = np.pad(x, ((0, 0), (0, 0), *more), constant_values=-np.inf)
    return sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride].max(axis=(4, 5))


def avg_pool(x, size, stride):
    """The mean over windows."""
    return sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride].mean(axis=(4, 5))


def global_avg_pool(x):
    """The mean over all pixels of a channel, [n, c, h, w] to [n, c]."""
    return x.mean(axis=(2, 3))


def batch_norm(x, weight, bias, running_mean, running_var):
    """Each channel by the statistics of training (Ioffe and Szegedy 2015)."""
    axes = (-1,) + (1,) * (x.ndim - 2)
    scale = weight / np.sqrt(running_var + EPSILON)
    return (x - running_mean.reshape(axes)) * scale.reshape(axes) + bias.reshape(axes)


def group_norm(x, weight, bias, groups):
    """Groups of channels by the mean and the variance of each sample (Wu and He 2018)."""
    axes = (-1,) + (1,) * (x.ndim - 2)
    grouped = x.reshape(len(x), groups, -1)
    mean, variance = grouped.mean(axis=2, keepdims=True), grouped.var(axis=2, keepdims=True)
    normalised = ((grouped - mean) / np.sqrt(variance + EPSILON)).reshape(x.shape)
    return normalised * weight.reshape(axes) + bias.reshape(axes)


def local_response_norm(x, size, alpha, beta, k):
    """Each pixel over neighbouring channels (Krizhevsky et al. 2012), with `alpha` divided by `size`."""
    squares = np.pad(x * x, ((0, 0), (size // 2, (size - 1) // 2), (0, 0), (0, 0)))
    return x / (k + alpha * sliding_window_view(squares, size, axis=1).mean(axis=-1)) ** beta


def embedding(x, weight):
    """The vector of each token, [n, t] to [n, t, d]."""
    return weight[x]


def lstm(x, weight_ih, weight_hh, bias):
    """An LSTM, [n, t, d] to [n, t, hidden], that begins with zeros."""
    hidden = cell = np.zeros((len(x), weight_hh.shape[1]), x.dtype)
    inputs, outputs = x @ weight_ih.T + bias, []
    for position in range(x.shape[1]):
        gates = inputs[:, position] + hidden @ weight_hh.T
        enter, forget, new, leave = np.split(gates, 4, axis=1)
        cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(new)
        hidden = sigmoid(leave) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs, axis=1)


def sigmoid(x):
    """`1 / (1 + exp(-x))`, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def cosine(a, b):
    """The cosines of the rows of `a` with those of `b`; 0 with a row of zeros."""
    lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
    return a @ b.T / np.maximum(lengths, 1e-30)


def softmax(x):
    """Probabilities of logits, over the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, which is the length of a header, the header in JSON, and numbers."""
    content = Path(path).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        first, last = about["data_offsets"]
        values = np.frombuffer(content, "<f4", count=(last - first) // 4, offset=begin + first)
        tensors[name] = values.reshape(about["shape"])
    return tensors


def by_layer(tensors: dict[str, np.ndarray], prefix: str = "") -> dict[str, dict[str, np.ndarray]]:
    """The tensors of each layer by their names in it, of the layers whose names begin with `prefix`."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            layer, kind = name[len(prefix) :].rsplit(".", 1)
            layers.setdefault(layer, {})[kind] = tensor
    return layers
