/** Disk images: what they are, what stands below them, and qemu-img's work on them. Knows neither domains nor pools. */
export { isEncrypted, type Layer, MOST_LAYERS, MOST_READ_LAYERS, readLayers } from './chain.ts';
export { diskId } from './disk-id.ts';
export { type FingerprintStore, fingerprintOf } from './fingerprint.ts';
export {
  checkImage,
  convertImage,
  createImage,
  imageInfo,
  isEmptyOverlay,
  rebaseUnsafe,
} from './image.ts';
export { imageHeaderOf, readImageHeader, SECTOR_BYTES } from './qcow2-header.ts';
export { qemuImg } from './qemu-img.ts';
export { assertSelfContained, dependenceOf } from './self-contained.ts';
export { shareExtents } from './share-extents.ts';
export { changedSource, markSources, refuseChangedSources, type SourceMark } from './source-guard.ts';
