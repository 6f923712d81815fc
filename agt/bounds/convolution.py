"""The rule of ``nn.Conv2d``, computed as matrix products over the patches of an image (im2col).

PyTorch's own convolution is not used, since it may take short cuts (Winograd, FFT) whose rounding
no proof here covers. Nor is its unfolding, which starts its threads again for each image.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.bounds.pooling import IntPair, as_pair
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.data.arrays import block_slices
from agt.errors import ConfigError

# At most this many scalars of a [K, records, parameters] tensor of gradients are made at once.
_GRADIENT_BLOCK_NUMBERS = 1 << 20


@dataclass(frozen=True)
class ConvRule:
    """The rule of a two-dimensional convolution, [..., channels, H, W] -> [..., out, H', W'].

    Formal guarantee: outputs, gradients in the input and gradients in the parameters are bounded by
    exact interval products, widened by a bound on the rounding of their sums
    (docs/proofs/layers.md).

    Attributes:
        name: the prefix of the parameters ``NAME.weight`` and ``NAME.bias`` [out].
        bias: whether the layer has a bias.
        weight_shape: (out, channels / groups, rows, columns); rows and columns are of a window.
        stride: the steps between neighbouring windows, in rows and columns.
        padding: the rows and columns of zeros that are added on each side of the image.
        dilation: the distances between the pixels that a window reads, in rows and columns.
        groups: the number of groups of channels; each group is convolved separately.
        nonnegative: True if the layer's input is at least 0 for all data, for example after ReLU;
            a cheaper exact interval product is then used.
    """

    name: str
    bias: bool
    weight_shape: tuple[int, int, int, int]
    stride: IntPair
    padding: IntPair
    dilation: IntPair
    groups: int
    nonnegative: bool = False

    @classmethod
    def from_layer(cls, name: str, layer: nn.Conv2d) -> "ConvRule":
        """Return the rule of a PyTorch convolution.

        Args:
            name: the layer's name in the network.
            layer: the layer; only its settings and the shape of its weight are read.

        Raises:
            ConfigError: the image is padded with something other than zeros, or the padding is
                given as a word ("same", "valid").
        """
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise ConfigError(
                f"model: layer {name} (Conv2d) has padding={layer.padding!r} and "
                f"padding_mode={layer.padding_mode!r}, for which agt has no bound rule: give the "
                "padding as numbers, and padding_mode='zeros'"
            )
        outputs, channels_of_group, rows, columns = layer.weight.shape
        return cls(
            name,
            bias=layer.bias is not None,
            weight_shape=(outputs, channels_of_group, rows, columns),
            stride=as_pair(layer.stride),
            padding=as_pair(layer.padding),
            dilation=as_pair(layer.dilation),
            groups=layer.groups,
        )

    def nominal(self, inputs: Tensor, point: Point) -> Tensor:
        """Return the convolution for given parameter values.

        Args:
            inputs: images, [n, channels, H, W].
            point: the parameter values, by name.

        Returns:
            [n, out, H', W'].
        """
        # For each group, a matrix with one row per output times the patches as columns.
        weight = self._group_weight(point[f"{self.name}.weight"])
        patches = self._unfold(inputs)
        output = weight @ patches
        if self.bias:
            bias = point[f"{self.name}.bias"]
            output = output + bias.view(self.groups, -1, 1)  # the same at all positions
        height, width = self._output_size(inputs.shape)
        outputs = self.weight_shape[0]
        return output.reshape(*inputs.shape[:-3], outputs, height, width)

    def nominal_backward(self, output_gradient: Tensor, inputs: Tensor, point: Point) -> Tensor:
        """Return the loss gradient in the input.

        Args:
            output_gradient: the loss gradient in the layer's output, [n, out, H', W'].
            inputs: the layer's input, [n, channels, H, W], of which only the shape is used.
            point: the parameter values, by name.

        Returns:
            [n, channels, H, W].
        """
        weight = self._group_weight(point[f"{self.name}.weight"])
        patch_gradients = weight.mT @ self._group_outputs(output_gradient)
        # A number of the image is in several patches, whose gradients are added up.
        return self._fold(patch_gradients, inputs.shape)

    def nominal_gradients(
        self, output_gradient: Tensor, inputs: Tensor
    ) -> Iterator[tuple[str, Tensor, None]]:
        """Yield each record's gradients in the weight and in the bias, as whole gradients.

        Args:
            output_gradient: the loss gradient in the layer's output, [n, out, H', W'].
            inputs: the layer's input, [n, channels, H, W].

        Yields:
            (parameter, gradient, None): gradients in the weight [block of records, scalars of the
            weight], in several blocks in the order of the records, so that memory is bounded; then
            those in the bias, [n, out].
        """
        for block in self._record_blocks(1, len(output_gradient)):
            patches = self._unfold(inputs[block])
            # For each output, the sum over all positions of its gradient times the patch there.
            gradient = self._group_outputs(output_gradient[block]) @ patches.mT
            yield f"{self.name}.weight", gradient.flatten(1), None
        if self.bias:
            yield f"{self.name}.bias", output_gradient.flatten(2).sum(dim=-1), None

    def bound(
        self, inputs: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the convolution over all images and parameters in their intervals.

        Args:
            inputs: bounds on the images, [K or 1, n, channels, H, W].
            box: bounds on the parameters, by name, [K, *parameter shape].
            rounding: the widening by which bounds cover floating-point error, for each k.
            products: the interval matrix products to use.

        Returns:
            [K, n, out, H', W'].
        """
        patches = inputs.rearranged(self._unfold_each_k)
        weight = box[f"{self.name}.weight"]
        # The product takes one vector per row: here a row is the patch of one position.
        product = products.forward(
            patches.rearranged(_transposed),
            weight.rearranged(self._group_weight_for_records),
            self.nonnegative,
        )
        lower, upper = (end.mT for end in product)  # [K, n, groups, out / groups, positions]
        # Lemma 2 of docs/proofs/layers.md: every output is a sum of ``length`` products, whose
        # absolute values add up to at most ``size``, as in a linear layer.
        length = prod(self.weight_shape[1:])
        size = _largest_of_record(inputs) * _largest_of_all(weight) * length
        if self.bias:
            bias = box[f"{self.name}.bias"]
            bias_of_group = bias.rearranged(lambda end: end.view(len(end), 1, self.groups, -1, 1))
            lower = lower.add_(bias_of_group.lower)
            upper = upper.add_(bias_of_group.upper)
            size = size + _largest_of_all(bias)
        error_bound = rounding.sum_error(length, size)
        bounds = rounding.widen((lower.flatten(2), upper.flatten(2)), error_bound)
        image_shape = (*lower.shape[:2], self.weight_shape[0], *self._output_size(inputs.shape))
        return bounds.rearranged(lambda end: end.view(image_shape))

    def bound_backward(
        self,
        output_gradient: Interval,
        inputs: Interval,
        box: Intervals,
        rounding: Rounding,
        products: Products,
    ) -> Interval:
        """Bound the loss gradient in the input over all values in their intervals.

        Args:
            output_gradient: bounds on the loss gradient in the output, [K, n, out, H', W'].
            inputs: bounds on the input, [K or 1, n, channels, H, W], of which only the shape is
                used.
            box: bounds on the parameters, by name, [K, *parameter shape].
            rounding: the widening by which bounds cover floating-point error, for each k.
            products: the interval matrix products to use.

        Returns:
            [K, n, channels, H, W].
        """
        weight = box[f"{self.name}.weight"]
        rows = output_gradient.rearranged(lambda end: _transposed(self._group_outputs(end)))
        weights = weight.rearranged(lambda end: _transposed(self._group_weight_for_records(end)))
        # Interval products are symmetric, so the weight may stand on the left. The result then has
        # the patches as columns, as ``_fold`` takes them.
        ends = products.backward(weights, rows)
        shape = (*output_gradient.shape[:2], *inputs.shape[2:])
        lower, upper = (self._fold(end, shape) for end in ends)
        # Lemma 3 of docs/proofs/layers.md: a number of the image gets one sum of at most ``length``
        # products, over the outputs of its group and the positions of a window.
        outputs, _, window_rows, window_columns = self.weight_shape
        length = window_rows * window_columns * outputs // self.groups
        size = _largest_of_record(output_gradient) * _largest_of_all(weight) * length
        error_bound = rounding.sum_error(length, size)
        bounds = rounding.widen((lower.flatten(2), upper.flatten(2)), error_bound)
        return bounds.rearranged(lambda end: end.view(shape))

    def gradients(
        self,
        output_gradient: Interval,
        inputs: Interval,
        rounding: Rounding,
        products: Products,
    ) -> Iterator[Gradient]:
        """Yield bounds on each record's gradients in the weight and in the bias.

        Args:
            output_gradient: bounds on the loss gradient in the output, [K, n, out, H', W'], in
                float64.
            inputs: bounds on the input, [K or 1, n, channels, H, W], in float64.
            rounding: the widening by which bounds cover floating-point error, for each k.
            products: the interval matrix products to use.

        Yields:
            Whole gradients, without a right factor: in the weight [K, block of records, scalars of
            the weight], in several blocks in the order of the records, so that memory is bounded;
            then in the bias, [K, n, out].
        """
        ks, records = output_gradient.shape[:2]
        positions = prod(output_gradient.shape[3:])  # H' W'
        # A bound on the sum over positions of each record's absolute output gradients.
        size = _largest_of_record(output_gradient) * positions
        for block in self._record_blocks(ks, records):
            # Lemma 4 of docs/proofs/layers.md: a gradient in the weight is a sum over positions of
            # products of an output gradient and an input.
            largest_input = _largest_of_record(inputs[:, block])
            error_bound = rounding.sum_error(positions, size[:, block] * largest_input)
            patches = inputs[:, block].rearranged(self._unfold_each_k)
            gradients = output_gradient[:, block].rearranged(self._group_outputs)
            product = products.forward(patches, gradients, self.nonnegative)
            lower, upper = (end.mT.flatten(2) for end in product)
            bounds = rounding.widen((lower, upper), error_bound)
            yield Gradient(f"{self.name}.weight", bounds, None)
        if self.bias:
            lower_sums = output_gradient.lower.flatten(3).sum(dim=-1)
            upper_sums = output_gradient.upper.flatten(3).sum(dim=-1)
            error_bound = rounding.sum_error(positions, size)
            bounds = rounding.widen((lower_sums, upper_sums), error_bound)
            yield Gradient(f"{self.name}.bias", bounds, None)

    def count_numbers_held(self, layer_input: Tensor, layer_output: Tensor) -> int:
        """Return the number of scalars of one record's input, patches and output together.

        Args:
            layer_input: one record's input, [1, channels, H, W].
            layer_output: its output, [1, out, H', W'].
        """
        patches = self._unfold(layer_input)
        return layer_input.numel() + patches.numel() + layer_output.numel()

    def _unfold(self, images: Tensor, leading_axes: int = 1) -> Tensor:
        """Return the patches of images: for each output position, the inputs that it reads.

        Numbers are only copied, and zeros added for the padding.

        Args:
            images: [..., channels, H, W], the images to cut into patches.
            leading_axes: the number of axes before those of a record.

        Returns:
            [..., groups, channels / groups * rows * columns, positions], where rows and columns
            are those of the window, and positions is H' W'.

        Raises:
            ConfigError: a record is not an image of ``channels`` channels, or is smaller than a
                window.
        """
        channels = self.weight_shape[1] * self.groups
        record = tuple(images.shape[leading_axes:])
        is_image = len(record) == 3 and record[0] == channels
        if not is_image or min(self._output_size(record)) < 1:
            window = "{} x {}".format(*self._window_size)
            raise ConfigError(
                f"model: layer {self.name} (Conv2d) needs images with {channels} channels, at "
                f"least as large as its window of {window} (padding included), but gets records of "
                f"shape {record}: change the layer, or the shape of the records"
            )
        rows, columns = self._window_size
        row_stride, column_stride = self.stride
        row_step, column_step = self.dilation
        padded = images
        if any(self.padding):
            row_padding, column_padding = self.padding
            padded = nn.functional.pad(
                images, (column_padding, column_padding, row_padding, row_padding)
            )
        # ``unfold`` replaces an axis by that of the windows' positions, and appends the axis within
        # a window. So both calls are for axis -2: first H, and then W, which has moved there.
        windows = padded.unfold(-2, rows, row_stride).unfold(-2, columns, column_stride)
        dilated = windows[..., ::row_step, ::column_step]  # still a view
        # From [..., channels, H', W', rows, columns] to [..., channels, rows, columns, H', W'].
        arranged = dilated.movedim((-4, -3), (-2, -1))
        patch_length = prod(self.weight_shape[1:])
        positions = prod(arranged.shape[-2:])
        return arranged.reshape(*images.shape[:-3], self.groups, patch_length, positions)

    def _unfold_each_k(self, images: Tensor) -> Tensor:
        """Return the patches of images that have an axis of k, [K or 1, n, channels, H, W].

        Returns:
            [K or 1, n, groups, channels / groups * rows * columns, positions].
        """
        return self._unfold(images, leading_axes=2)

    def _fold(self, patches: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return images in which each number is the sum of its entries in all patches.

        This is the transpose of ``_unfold`` as a linear map, as the backward pass needs it.

        Args:
            patches: [..., groups, channels / groups * rows * columns, positions].
            shape: the shape of the result, [..., channels, H, W].
        """
        row_stride, column_stride = self.stride
        row_step, column_step = self.dilation
        first_row, first_column = self.padding
        height, width = shape[-2:]
        window_rows, window_columns = self.weight_shape[2:]
        rows_out, columns_out = self._output_size(shape)
        windows = patches.reshape(*shape[:-2], window_rows, window_columns, rows_out, columns_out)
        padded_size = (height + 2 * first_row, width + 2 * first_column)
        padded = patches.new_zeros((*shape[:-2], *padded_size))
        # One pixel (i, j) of the window at a time: its entries belong to different numbers of the
        # image, so that a single addition of slices serves all positions.
        for i in range(window_rows):
            for j in range(window_columns):
                from_ij = padded[..., i * row_step :: row_stride, j * column_step :: column_stride]
                from_ij[..., :rows_out, :columns_out] += windows[..., i, j, :, :]
        image = padded[..., first_row : first_row + height, first_column : first_column + width]
        return image.contiguous()

    def _group_outputs(self, output_gradient: Tensor) -> Tensor:
        """Return output gradients as one matrix for each group, by a reshape.

        Args:
            output_gradient: [..., out, H', W'], gradients in the layer's output.

        Returns:
            [..., groups, out / groups, positions], where positions is H' W'.
        """
        outputs_of_group = self.weight_shape[0] // self.groups
        positions = prod(output_gradient.shape[-2:])
        return output_gradient.reshape(
            *output_gradient.shape[:-3], self.groups, outputs_of_group, positions
        )

    def _group_weight(self, weight: Tensor) -> Tensor:
        """Return a weight as one matrix for each group, by a reshape.

        Args:
            weight: [..., out, channels / groups, rows, columns], the layer's weights.

        Returns:
            [..., groups, out / groups, channels / groups * rows * columns].
        """
        outputs_of_group = self.weight_shape[0] // self.groups
        return weight.reshape(*weight.shape[:-4], self.groups, outputs_of_group, -1)

    def _group_weight_for_records(self, weight: Tensor) -> Tensor:
        """Return a bound on the weight as ``_group_weight`` does, with an axis for the records.

        Args:
            weight: [K, out, channels / groups, rows, columns], bounds on the layer's weights.

        Returns:
            [K, 1, groups, out / groups, channels / groups * rows * columns]; the axis of length 1
            is broadcast over the records.
        """
        return self._group_weight(weight)[:, None]

    def _record_blocks(self, ks: int, records: int) -> list[slice]:
        """Return slices of records, so that the weight gradients of a slice fit into memory.

        Args:
            ks: K, the number of distances k that are computed at once.
            records: the number of records.

        Returns:
            Slices that cover all records in order. The gradients of a slice have at most
            ``_GRADIENT_BLOCK_NUMBERS`` scalars, or the slice has a single record.
        """
        numbers_per_record = ks * prod(self.weight_shape)
        records_at_once = max(1, _GRADIENT_BLOCK_NUMBERS // numbers_per_record)
        return block_slices(records, records_at_once)

    @property
    def _window_size(self) -> IntPair:
        """Return the (rows, columns) of an image that a window spans, gaps of dilation included."""
        _, _, rows, columns = self.weight_shape
        row_step, column_step = self.dilation
        height = row_step * (rows - 1) + 1
        width = column_step * (columns - 1) + 1
        return height, width

    def _output_size(self, shape: tuple[int, ...]) -> IntPair:
        """Return the output's height and width (H', W') for an image; below 1 if it is too small.

        Args:
            shape: the shape of the image without padding, whose last two axes are H and W.
        """
        # The number of positions of a window along each of the two axes.
        axes = zip(shape[-2:], self.padding, self._window_size, self.stride, strict=True)
        positions = []
        for length, padding, window, stride in axes:
            positions.append((length + 2 * padding - window) // stride + 1)
        rows, columns = positions
        return rows, columns


def _transposed(matrices: Tensor) -> Tensor:
    """Return each matrix transposed, [..., a, b] -> [..., b, a], as a function to pass on."""
    return matrices.mT


def _largest_of_record(values: Interval) -> Tensor:
    """Return the largest absolute value within each record's bounds.

    Args:
        values: [K or 1, n, ...], bounds on values of n records.

    Returns:
        [K or 1, n, 1].
    """
    return values.rearranged(lambda end: end.flatten(2)).inf_norm()


def _largest_of_all(parameter: Interval) -> Tensor:
    """Return the largest absolute value within the bounds of a whole parameter.

    Args:
        parameter: [K, *parameter shape], bounds on the parameter.

    Returns:
        [K, 1, 1].
    """
    return parameter.magnitude().flatten(1).amax(dim=1)[:, None, None]
