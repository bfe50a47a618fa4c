/** For a reverse proxy: an answer that is held back there looks as if its reader took nothing. */
export const UNBUFFERED = { 'x-accel-buffering': 'no' } as const;
