import { expect, test } from '@jest/globals';
import { ClientError, Status } from 'nice-grpc-common';
import { ERRORS, type ErrorKey, VirtkeepError } from './errors.ts';
import {
  fromClientError,
  fromErrorMessage,
  grpcStatus,
  isUnimplemented,
  toErrorMessage,
} from './grpc-status.ts';

test('every key has a gRPC status, and only faults of our own are INTERNAL', () => {
  for (const key of Object.keys(ERRORS) as ErrorKey[]) {
    expect(grpcStatus(key)).not.toBe(Status.OK);
    expect([key, grpcStatus(key) === Status.INTERNAL]).toEqual([key, ERRORS[key].code.startsWith('500')]);
  }
  expect(grpcStatus('operation_conflict')).toBe(Status.ALREADY_EXISTS);
});

test('an error survives the way through an operation; an unknown key becomes internal', () => {
  const error = new VirtkeepError('pool_no_space', { pool: 'p', free_bytes: 1, needed_bytes: 2n });
  const again = fromErrorMessage(toErrorMessage(error));
  expect(again).toMatchObject({ msgKey: 'pool_no_space', message: error.message, params: error.params });
  expect(fromErrorMessage({ msgKey: 'of_tomorrow', code: '1', detail: 'new', params: {} }).msgKey).toBe(
    'internal',
  );
});

test('a method that the server does not know makes it an older one, and not one that cannot be reached', () => {
  const statusOf = (code: Status) => {
    const path = '/virtkeep.agent.v1.BackupService/RecompressCopy';
    return fromClientError(new ClientError(path, code, 'told by the library'), 'n1');
  };
  const outdated = statusOf(Status.UNIMPLEMENTED);
  expect(outdated).toMatchObject({
    msgKey: 'node_outdated',
    params: { node: 'n1', method: 'RecompressCopy' },
  });
  expect(isUnimplemented(outdated)).toBe(true);
  const away = statusOf(Status.UNAVAILABLE);
  expect(away).toMatchObject({ msgKey: 'node_unreachable' });
  expect(isUnimplemented(away)).toBe(false);
});
