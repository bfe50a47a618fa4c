/** ISO images, as the controller and the agents name them. */
import { uuidV5 } from './ids.ts';

/** Id of an image: the same on each node that has the pool. @param filename relative to the pool's directory */
export const isoIdOf = (poolId: string, filename: string): string => uuidV5(poolId, `iso/${filename}`);
