/** For clients of tests: what fails is thrown as an error of the table, as a controller has it. */
import { fromClientError } from '@virtkeep/shared/grpc-status';
import type { ClientMiddleware } from 'nice-grpc';

export const tableErrors = (node: string): ClientMiddleware =>
  async function* (call, options) {
    try {
      return yield* call.next(call.request, options);
    } catch (error) {
      throw fromClientError(error, node);
    }
  };
