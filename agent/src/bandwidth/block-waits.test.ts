import { expect, test } from '@jest/globals';
import { countersByPool } from './block-waits.ts';

const pool = (id: string, path: string) => ({ id, name: id, path, outside: false });

test('the waits of running disks by the pool that they lie in', () => {
  const stats = [
    {
      id: 1,
      uuid: 'vm',
      name: 'vm',
      params: {
        'block.count': 3,
        'block.0.name': 'vda',
        'block.0.path': '/fast/vm.qcow2',
        'block.0.rd.reqs': 10,
        'block.0.rd.times': 1000,
        'block.0.wr.reqs': 5,
        'block.0.wr.times': 500,
        'block.0.fl.reqs': 1,
        'block.0.fl.times': 200,
        'block.1.name': 'vdb',
        'block.1.path': '/elsewhere/vm.qcow2',
        'block.1.rd.reqs': 10,
        'block.1.rd.times': 10,
        // an empty drive
        'block.2.name': 'sda',
        'block.2.rd.reqs': 0,
      },
    },
    // one that something is being done with
    {
      id: 2,
      uuid: 'busy',
      name: 'busy',
      params: { 'block.count': 1, 'block.0.name': 'vda', 'block.0.path': '/fast/busy.qcow2' },
    },
  ];
  const found = countersByPool(stats, [pool('fast', '/fast'), pool('slow', '/slow')]);
  expect(found).toEqual(
    new Map([
      [
        'fast',
        new Map([
          [
            'vm vda',
            {
              reads: { operations: 10, waitedNs: 1000 },
              writes: { operations: 5, waitedNs: 500 },
              flushes: { operations: 1, waitedNs: 200 },
            },
          ],
        ]),
      ],
      ['slow', new Map()],
    ]),
  );
});
