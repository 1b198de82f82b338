// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.util.Arrays;

/**
 * A language model on bytes, independent of Meron. It is a row of layers. Each layer reads its weights and adds to its
 * gradients in arrays of the caller:
 *
 * <pre>
 *   layer 0               embedding: a row of `bytes` per byte seen, side by side: `width` values
 *   layers 1 .. blocks    residual block: h + relu(h w1 + b1) w2 + b2
 *   layer blocks + 1      head: softmax(h w + b) over the 256 values of the next byte
 * </pre>
 */
final class Model {
    static final int BYTE_VALUES = 256;

    /** A weight of a layer. Initial values are uniform in [-bound, bound). */
    static final class Tensor {
        final String name;
        final long[] shape;
        final double bound;

        Tensor(String name, double bound, long... shape) {
            this.name = name;
            this.bound = bound;
            this.shape = shape;
        }
    }

    private final int batch;
    private final int context;
    private final int width;
    private final int blocks;
    private final byte[] text;
    /** Of each example: where its `context` bytes begin in the text; the next one is to predict. */
    final int[] windows;
    /** Of the last forward pass: mean negative log-likelihood, in nats. */
    float loss;

    // Activations, kept from forward to backward. One row per example.
    private final float[][] hidden; // [blocks + 1][batch * width] what flows from layer to layer
    private final float[][] inner; // [blocks][batch * width] relu(h w1 + b1)
    private final float[] logitsError; // [batch * 256] gradient of the loss by the logits
    private final float[] hiddenError; // by `hidden`, on its way back
    private final float[] innerError;
    private final float[] bytesError; // [256 * width / context] by the embedding
    private final Matrix.Scratch scratch;

    Model(byte[] text, int batch, int context, int width, int blocks) {
        this.text = text;
        this.batch = batch;
        this.context = context;
        this.width = width;
        this.blocks = blocks;
        windows = new int[batch];
        hidden = new float[blocks + 1][Math.multiplyExact(batch, width)];
        inner = new float[blocks][batch * width];
        logitsError = new float[Math.multiplyExact(batch, BYTE_VALUES)];
        hiddenError = new float[batch * width];
        innerError = new float[batch * width];
        bytesError = new float[BYTE_VALUES * (width / context)];
        final int widest = Math.max(width, BYTE_VALUES);
        scratch = new Matrix.Scratch(widest, Math.multiplyExact(width, widest));
    }

    int layers() {
        return blocks + 2;
    }

    Tensor[] tensors(int layer) {
        final double unit = Math.sqrt(3.0 / width); // keeps the variance of what passes through
        if (layer == 0) return new Tensor[] {new Tensor("bytes", 1.0, BYTE_VALUES, width / context)};
        if (layer <= blocks) {
            return new Tensor[] {
                new Tensor("w1", Math.sqrt(2.0) * unit, width, width), new Tensor("b1", 0.0, width),
                new Tensor("w2", unit / blocks, width, width), new Tensor("b2", 0.0, width),
            };
        }
        return new Tensor[] {
            new Tensor("w", 0.1 * unit, width, BYTE_VALUES), new Tensor("b", 0.0, BYTE_VALUES),
        };
    }

    /** Runs one layer. Call it for the layers in order; the head sets `loss`. */
    void forward(int layer, float[][] weights) {
        if (layer == 0) {
            embeddingForward(weights[0], hidden[0]);
        } else if (layer <= blocks) {
            blockForward(weights, hidden[layer - 1], inner[layer - 1], hidden[layer]);
        } else {
            headForward(weights, hidden[layer - 1]);
        }
    }

    /** Runs one layer backwards, in reverse order, and adds the batch's gradient to `gradients`. */
    void backward(int layer, float[][] weights, float[][] gradients) {
        if (layer == 0) {
            embeddingBackward(gradients[0]);
        } else if (layer <= blocks) {
            blockBackward(weights, gradients, hidden[layer - 1], inner[layer - 1]);
        } else {
            headBackward(weights, gradients, hidden[layer - 1]);
        }
    }

    // ---- Embedding -------------------------------------------------------------------------------

    private int at(int example, int place) {
        return text[windows[example] + place] & 0xFF;
    }

    private void embeddingForward(float[] bytes, float[] output) {
        final int columns = width / context;
        for (int i = 0; i < batch; ++i) {
            for (int t = 0; t < context; ++t) {
                System.arraycopy(
                        bytes, at(i, t) * columns, output, i * width + t * columns, columns);
            }
        }
    }

    private void embeddingBackward(float[] gradient) {
        final int columns = width / context;
        Arrays.fill(bytesError, 0f);
        for (int i = 0; i < batch; ++i) {
            for (int t = 0; t < context; ++t) {
                final int from = i * width + t * columns;
                final int to = at(i, t) * columns;
                for (int x = 0; x < columns; ++x) bytesError[to + x] += hiddenError[from + x];
            }
        }
        for (int x = 0; x < BYTE_VALUES * columns; ++x) gradient[x] += bytesError[x];
    }

    // ---- Residual block --------------------------------------------------------------------------

    private void blockForward(float[][] weights, float[] input, float[] inner, float[] output) {
        setRows(inner, weights[1], width);
        Matrix.addProduct(inner, Matrix.rows(input, width), Matrix.rows(weights[0], width), batch,
                width, width, scratch);
        for (int x = 0; x < batch * width; ++x) inner[x] = inner[x] > 0f ? inner[x] : 0f;

        setRows(output, weights[3], width);
        Matrix.addProduct(output, Matrix.rows(inner, width), Matrix.rows(weights[2], width), batch,
                width, width, scratch);
        for (int x = 0; x < batch * width; ++x) output[x] += input[x];
    }

    private void blockBackward(float[][] weights, float[][] gradients, float[] input, float[] inner) {
        Matrix.addProduct(gradients[2], Matrix.transpose(inner, width),
                Matrix.rows(hiddenError, width), width, width, batch, scratch);
        Matrix.addRowSums(gradients[3], hiddenError, width, batch, scratch);

        Arrays.fill(innerError, 0f);
        Matrix.addProduct(innerError, Matrix.rows(hiddenError, width),
                Matrix.transpose(weights[2], width), batch, width, width, scratch);
        for (int x = 0; x < batch * width; ++x) {
            if (inner[x] <= 0f) innerError[x] = 0f;
        }

        Matrix.addProduct(gradients[0], Matrix.transpose(input, width),
                Matrix.rows(innerError, width), width, width, batch, scratch);
        Matrix.addRowSums(gradients[1], innerError, width, batch, scratch);

        // hiddenError already contains the values of the residual path.
        Matrix.addProduct(hiddenError, Matrix.rows(innerError, width),
                Matrix.transpose(weights[0], width), batch, width, width, scratch);
    }

    // ---- Head ------------------------------------------------------------------------------------

    private void headForward(float[][] weights, float[] input) {
        final float[] logits = logitsError; // turned into their error in place
        setRows(logits, weights[1], BYTE_VALUES);
        Matrix.addProduct(logits, Matrix.rows(input, width), Matrix.rows(weights[0], BYTE_VALUES),
                batch, BYTE_VALUES, width, scratch);

        double total = 0.0;
        for (int i = 0; i < batch; ++i) {
            final int row = i * BYTE_VALUES;
            final int target = at(i, context);
            float greatest = logits[row];
            for (int x = 1; x < BYTE_VALUES; ++x) {
                greatest = logits[row + x] > greatest ? logits[row + x] : greatest;
            }
            final float distance = greatest - logits[row + target];
            float sum = 0f;
            for (int x = 0; x < BYTE_VALUES; ++x) {
                logits[row + x] = Elementary.exp(logits[row + x] - greatest);
                sum += logits[row + x];
            }
            for (int x = 0; x < BYTE_VALUES; ++x) {
                logits[row + x] = (logits[row + x] / sum - (x == target ? 1f : 0f)) / batch;
            }
            total += Elementary.log(sum) + distance;
        }
        loss = (float) (total / batch);
    }

    private void headBackward(float[][] weights, float[][] gradients, float[] input) {
        Matrix.addProduct(gradients[0], Matrix.transpose(input, width),
                Matrix.rows(logitsError, BYTE_VALUES), width, BYTE_VALUES, batch, scratch);
        Matrix.addRowSums(gradients[1], logitsError, BYTE_VALUES, batch, scratch);
        Arrays.fill(hiddenError, 0f);
        Matrix.addProduct(hiddenError, Matrix.rows(logitsError, BYTE_VALUES),
                Matrix.transpose(weights[0], BYTE_VALUES), batch, width, BYTE_VALUES, scratch);
    }

    private void setRows(float[] to, float[] row, int n) {
        for (int i = 0; i < batch; ++i) System.arraycopy(row, 0, to, i * n, n);
    }

    // ---- Random numbers --------------------------------------------------------------------------

    /** SplitMix64's output function (Steele, Lea and Flood, 2014). */
    private static long mix(long x) {
        x += 0x9E3779B97F4A7C15L;
        x = (x ^ (x >>> 30)) * 0xBF58476D1CE4E5B9L;
        x = (x ^ (x >>> 27)) * 0x94D049BB133111EBL;
        return x ^ (x >>> 31);
    }

    /** A random number that depends on nothing but its arguments: the same on every rank. */
    static long randomBits(long seed, long stream, long index) {
        return mix(mix(mix(seed) + stream) + index);
    }

    /** Initial values of a tensor; `stream` numbers the tensors of the model. */
    static float[] initialValues(Tensor tensor, long seed, long stream, int count) {
        final float[] values = new float[count];
        for (int i = 0; i < count; ++i) {
            final float zeroToTwo = (float) (randomBits(seed, stream, i) >>> 40) * 0x1p-23f;
            values[i] = (zeroToTwo - 1f) * (float) tensor.bound;
        }
        return values;
    }
}
