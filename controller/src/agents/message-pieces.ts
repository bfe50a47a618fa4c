/**
 * grpc-js keeps the pieces of a stream's last message until the next one begins. Of a stream that says everything first and then little,
 * as a node's inventory does, that would be the largest, for ever: a quarter of a megabyte for each quiet node with a hundred VMs.
 */
import { StreamDecoder } from '@grpc/grpc-js/build/src/stream-decoder.js';

/** What its decoder of messages has, by grpc-js 1.14; where a later one has it no more, the test says so. */
interface Pieces {
  readPartialMessage: Buffer[];
  /** One byte, but of the piece in which the message began. */
  readCompressFlag: Buffer;
  /** 0 when the message is whole, or its size is not known yet. */
  readMessageRemaining: number;
}

/** What a message begins with, in memory of its own: whether it is compressed. */
const FLAGS: readonly Buffer[] = [0, 1].map(flag => Buffer.allocUnsafeSlow(1).fill(flag));
let isDone = false;

/** Has all streams of this process let go of messages that are whole. */
export function letGoOfPieces(): void {
  if (isDone) return;
  isDone = true;
  const { write } = StreamDecoder.prototype;
  StreamDecoder.prototype.write = function (this: StreamDecoder, data: Buffer) {
    const messages = write.call(this, data);
    const pieces = this as unknown as Pieces;
    if (pieces.readMessageRemaining === 0) {
      pieces.readPartialMessage = [];
      pieces.readCompressFlag = FLAGS[pieces.readCompressFlag[0]!] ?? pieces.readCompressFlag;
    }
    return messages;
  };
}
