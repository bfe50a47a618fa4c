/**
 * grpc-js keeps the pieces of a stream's last message until the next one begins. Of a stream that says everything first and then little,
 * as a node's inventory does, that would be the largest, for ever: a quarter of a megabyte for each quiet node with a hundred VMs.
 */
import { StreamDecoder } from '@grpc/grpc-js/build/src/stream-decoder.js';

/** What its decoder of messages has, by grpc-js 1.14; where a later one has it no more, the test says so. */
interface Pieces {
  readPartialMessage: Buffer[];
  /** 0 when the message is whole, or its size is not known yet. */
  readMessageRemaining: number;
}

let isDone = false;

/** Has all streams of this process let go of messages that are whole. */
export function letGoOfPieces(): void {
  if (isDone) return;
  isDone = true;
  const { write } = StreamDecoder.prototype;
  StreamDecoder.prototype.write = function (this: StreamDecoder, data: Buffer) {
    const messages = write.call(this, data);
    const pieces = this as unknown as Pieces;
    if (pieces.readMessageRemaining === 0) pieces.readPartialMessage = [];
    return messages;
  };
}
