import { Worker } from 'node:worker_threads';

/** Exchanges two names as fast as it can, until it is told to stop. */
const SWAPPER = `
  const { workerData, parentPort } = require('node:worker_threads');
  const koffi = require(workerData.koffi);
  const renameat2 = koffi.load('libc.so.6').func('int renameat2(int a, const char *from, int b, const char *to, unsigned int flags)');
  const told = new Int32Array(workerData.told);
  parentPort.postMessage('begun');
  while (Atomics.load(told, 0) === 0) renameat2(-100, workerData.one, -100, workerData.other, 2);
`;

/** Does work while a directory and a link, say, change their names all the time: what was looked at is another a moment later. */
export async function whileSwapped(one: string, other: string, work: () => Promise<void>): Promise<void> {
  const told = new SharedArrayBuffer(4);
  const koffi = new URL(import.meta.resolve('koffi')).pathname;
  const worker = new Worker(SWAPPER, { eval: true, workerData: { one, other, told, koffi } });
  const ended = new Promise(resolve => worker.once('exit', resolve));
  await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
  try {
    await work();
  } finally {
    Atomics.store(new Int32Array(told), 0, 1);
    await ended;
  }
}
