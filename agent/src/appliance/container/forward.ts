/** Bytes that come once and in order, read at offsets that only grow: what lies between is skipped. */
export class ForwardReader {
  readonly #pieces: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);
  /** Offset of what is left. */
  #at = 0;

  constructor(pieces: AsyncIterable<Buffer>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  /** The bytes of a range, fewer only at the end of all. */
  async *range(offset: number, lengthBytes: number): AsyncGenerator<Buffer> {
    while (this.#at + this.#left.length < offset) if (!(await this.#next())) return;
    this.#drop(offset - this.#at);
    for (let left = lengthBytes; left > 0; ) {
      if (this.#left.length === 0 && !(await this.#next())) return;
      const piece = this.#left.subarray(0, left);
      this.#drop(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  async read(offset: number, lengthBytes: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of this.range(offset, lengthBytes)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  /** Reads on to the end: only there a stream tells that it is whole. */
  async drain(): Promise<void> {
    while (await this.#next());
  }

  /** Ends what brings the bytes. */
  async close(): Promise<void> {
    await this.#pieces.return?.();
  }

  async #next(): Promise<boolean> {
    this.#at += this.#left.length;
    const { value, done } = await this.#pieces.next();
    this.#left = done ? Buffer.alloc(0) : value;
    return !done;
  }

  #drop(bytes: number): void {
    this.#left = this.#left.subarray(bytes);
    this.#at += bytes;
  }
}
