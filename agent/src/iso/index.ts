/** ISO images of the data pools: which there are, where one lies, its bytes. */
export { type IsoImage, listIsoImages } from './image-list.ts';
export { findIso, type IsoPlace, newIsoPlace } from './place.ts';
export { isoChunks } from './read.ts';
