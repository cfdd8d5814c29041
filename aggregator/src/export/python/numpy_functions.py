def conv2d(x, weight, bias=None, stride=1, padding=0, groups=1):
    """Cross-correlation of [n, c, h, w] with a weight [out, c / groups, k, k]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = sliding_window_view(x, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, axis=1), np.split(weight, groups))
    parts = [np.tensordot(part, own, axes=((1, 4, 5), (1, 2, 3))) for part, own in parts]
    y = np.concatenate(parts, axis=3).transpose(0, 3, 1, 2)
    return y if bias is None else y + bias[:, None, None]


def linear(x, weight, bias=None):
    """`x W^T + b` over the last axis."""
    y = x @ weight.T
    return y if bias is None else y + bias


def relu(x):
    """`max(x, 0)`."""
    return np.maximum(x, 0)


def relu6(x):
    """`min(max(x, 0), 6)`."""
    return np.clip(x, 0, 6)


def hard_sigmoid(x):
    """`min(max(x + 3, 0), 6) / 6`."""
    return np.clip(x + 3, 0, 6) / 6


def hard_swish(x):
    """`x min(max(x + 3, 0), 6) / 6`."""
    return x * hard_sigmoid(x)


def silu(x):
    """`x / (1 + exp(-x))`."""
    return x * sigmoid(x)


def gelu(x):
    """`x P(X <= x)` for a standard normal `X`, with the error function to 1e-7."""
    t = 1 / (1 + np.abs(x) / 8**0.5)
    powers = 0.17087277
    for factor in (-0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196):
        powers = powers * t + factor
    powers = (powers * t + 1.00002368) * t - 1.26551223
    tail = 0.5 * t * np.exp(powers - 0.5 * x * x)
    return x * np.where(x > 0, 1 - tail, tail)


def zero_pad(x, pixels):
    """Rows and columns of zeros around images."""
    return np.pad(x, ((0, 0), (0, 0), (pixels, pixels), (pixels, pixels)))


def to_sequence(x):
    """The pixels of an image as a sequence, [n, c, h, w] to [n, h w, c]."""
    return x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)


def class_token(x, weight):
    """A position before the others, [n, t, d] to [n, t + 1, d]."""
    return np.concatenate([np.broadcast_to(weight, (len(x), 1, x.shape[2])), x], axis=1)


def positions(x, weight):
    """Adds what is learned of each position, to as many as there are."""
    return x + weight[:, : x.shape[1]]


def sinusoidal_positions(x):
    """Adds waves, so that positions differ (Vaswani et al. 2017)."""
    _, positions, features = x.shape
    feature = np.arange(features)
    phases = np.arange(positions)[:, None] / 10000 ** (feature // 2 * 2 / features)
    return x + np.where(feature % 2 == 0, np.sin(phases), np.cos(phases)).astype(np.float32)


def attention(x, heads, causal=False):
    """Attention of several heads, [n, t, 3 d] to [n, t, d]; `causal` sees no later position."""
    n, t, _ = x.shape
    parts = (part.reshape(n, t, heads, -1).transpose(0, 2, 1, 3) for part in np.split(x, 3, axis=2))
    query, key, value = parts
    scores = query @ key.transpose(0, 1, 3, 2) / query.shape[3] ** 0.5
    if causal:
        scores = np.where(np.tri(t, dtype=bool), scores, -np.inf)
    return (softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(n, t, -1)


def first_position(x):
    """The first position, [n, t, d] to [n, d]."""
    return x[:, 0]


def mean_positions(x):
    """The mean over all positions, [n, t, d] to [n, d]."""
    return x.mean(axis=1)


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


def batch_norm(x, weight, bias, running_mean, running_var, epsilon=EPSILON):
    """Each channel by the statistics of training (Ioffe and Szegedy 2015)."""
    axes = (-1,) + (1,) * (x.ndim - 2)
    scale = weight / np.sqrt(running_var + epsilon)
    return (x - running_mean.reshape(axes)) * scale.reshape(axes) + bias.reshape(axes)


def group_norm(x, weight, bias, groups):
    """Groups of channels by the mean and the variance of each sample (Wu and He 2018)."""
    axes = (-1,) + (1,) * (x.ndim - 2)
    grouped = x.reshape(len(x), groups, -1)
    mean, variance = grouped.mean(axis=2, keepdims=True), grouped.var(axis=2, keepdims=True)
    normalised = ((grouped - mean) / np.sqrt(variance + EPSILON)).reshape(x.shape)
    return normalised * weight.reshape(axes) + bias.reshape(axes)


def layer_norm(x, weight, bias, epsilon):
    """The features of each sample, or of each position, by their mean and their variance (Ba et al. 2016)."""
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * weight + bias


def simplex_etf(x, weight):
    """Cosines of the features with the vertices of a regular simplex, times one factor (Li et al. 2023)."""
    classes = x.shape[-1]
    direction = x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-12)
    return weight * (classes / (classes - 1)) ** 0.5 * (direction - direction.mean(axis=-1, keepdims=True))


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
