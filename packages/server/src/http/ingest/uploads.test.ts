import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { READ_BYTES, receive, sizeText, UploadBudget } from './uploads.ts';

const OPTIONS = { bytesMax: 10 * READ_BYTES, exceptionsMax: 2 };

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Whether the upload may read without waiting; changes once it may. */
async function hasRoom(upload: { room(): Promise<void> }): Promise<{ isAdmitted: boolean }> {
  const state = { isAdmitted: false };
  upload.room().then(
    () => {
      state.isAdmitted = true;
    },
    () => {},
  );
  for (let turn = 0; turn < 5; turn++) await Promise.resolve();
  return state;
}

describe('the budget', () => {
  test('leaves room for others, however many uploads one owner has', async () => {
    const budget = new UploadBudget(OPTIONS);
    const slow = Array.from({ length: 100 }, () => budget.open('slow'));
    const admitted = await Promise.all(slow.map(hasRoom));
    // Half of the budget, and one exception.
    expect(admitted.filter(({ isAdmitted }) => isAdmitted)).toHaveLength(6);
    expect(await hasRoom(budget.open('other'))).toEqual({ isAdmitted: true });
  });

  test('counts the bytes received, not the reservations', async () => {
    const budget = new UploadBudget(OPTIONS);
    const uploads = Array.from({ length: 50 }, () => budget.open('tiny'));
    for (const upload of uploads) {
      expect(await hasRoom(upload)).toEqual({ isAdmitted: true });
      upload.received(10);
    }
    expect(budget.bytes).toBe(500);
  });

  test('lets uploads that fill the share of their owner continue one after the other', async () => {
    const budget = new UploadBudget(OPTIONS);
    const uploads = Array.from({ length: 8 }, () => budget.open('owner'));
    const rooms = await Promise.all(uploads.map(hasRoom));
    expect(rooms.map(({ isAdmitted }) => isAdmitted)).toEqual([
      true,
      true,
      true,
      true,
      true,
      true,
      false,
      false,
    ]);
    const exception = uploads[5];
    if (exception === undefined) throw new Error('there are eight');
    // It continues, although others wait, until it has a whole chunk.
    for (let i = 0; i < 20; i++) {
      exception.received(READ_BYTES);
      expect(await hasRoom(exception)).toEqual({ isAdmitted: true });
    }
    exception.received(READ_BYTES);
    exception.counted(21 * READ_BYTES);
    for (let turn = 0; turn < 5; turn++) await Promise.resolve();
    expect(rooms.map(({ isAdmitted }) => isAdmitted)).toEqual([
      true,
      true,
      true,
      true,
      true,
      true,
      true,
      false,
    ]);
  });

  test('fails an upload that waits too long, with Retry-After', async () => {
    const budget = new UploadBudget({ ...OPTIONS, exceptionsMax: 0 });
    for (let i = 0; i < 5; i++) await hasRoom(budget.open('owner'));
    const waiting = budget.open('owner').room();
    const refused = expect(waiting).rejects.toMatchObject({
      code: 'WAF.5001',
      headers: { 'Retry-After': '5' },
    });
    await vi.advanceTimersByTimeAsync(20_000);
    await refused;
  });

  test('is empty when all uploads are closed, whatever happened to them', async () => {
    const step = fc.record({
      upload: fc.nat(9),
      step: fc.constantFrom('room', 'received', 'counted', 'close'),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const budget = new UploadBudget(OPTIONS);
        const uploads = Array.from({ length: 10 }, (_, i) => ({
          upload: budget.open(`owner ${i % 3}`),
          state: 'idle',
          bytes: 0,
        }));
        for (const { upload: i, step } of steps) {
          const one = uploads[i];
          if (one === undefined || one.state === 'closed') continue;
          if (step === 'room' && one.state === 'idle') {
            one.state = 'waiting';
            one.upload.room().then(
              () => {
                if (one.state === 'waiting') one.state = 'reading';
              },
              () => {},
            );
            for (let turn = 0; turn < 5; turn++) await Promise.resolve();
          } else if (step === 'received' && one.state === 'reading') {
            one.upload.received(40_000);
            one.bytes += 40_000;
            one.state = 'idle';
          } else if (step === 'counted' && one.bytes > 0) {
            one.upload.counted(40_000);
            one.bytes -= 40_000;
          } else if (step === 'close' && one.state !== 'waiting') {
            one.upload.close();
            one.upload.close();
            one.state = 'closed';
          }
        }
        // Each upload that closes lets another continue, which closes then.
        for (let round = 0; round < 10; round++) {
          for (const one of uploads) {
            if (one.state === 'waiting' || one.state === 'closed') continue;
            one.upload.close();
            one.state = 'closed';
          }
          for (let turn = 0; turn < 5; turn++) await Promise.resolve();
        }
        expect(uploads.filter(({ state }) => state !== 'closed')).toEqual([]);
        expect(budget.bytes).toBe(0);
      }),
    );
  });
});

describe('a body', () => {
  const collect = async (body: PassThrough, bytesMax = 1_000_000) => {
    let bytes = 0;
    for await (const chunk of receive(body, bytesMax)) bytes += chunk.length;
    return bytes;
  };

  test('that stalls fails, and one that is slow does not', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const stalled = new PassThrough();
    stalled.write('a');
    const failed = expect(collect(stalled)).rejects.toThrow('the upload is too slow: send at least 16 KiB/s');
    await vi.advanceTimersByTimeAsync(10_100);
    await failed;

    const slow = new PassThrough();
    const received = collect(slow);
    for (let second = 0; second < 60; second++) {
      slow.write(Buffer.alloc(16_400));
      await vi.advanceTimersByTimeAsync(1_000);
    }
    slow.end();
    expect(await received).toBe(60 * 16_400);
  });

  test('that is too large fails', async () => {
    const body = new PassThrough();
    body.end(Buffer.alloc(1_001));
    await expect(collect(body, 1_000)).rejects.toThrow('request body exceeds 1000 bytes');
  });

  test('whose client disconnects fails', async () => {
    const body = new PassThrough();
    body.on('error', () => {});
    body.write('a');
    const failed = expect(collect(body)).rejects.toThrow('the client closed the connection');
    body.destroy();
    await failed;
  });
});

test('sizes are shown in the largest unit that divides them', () => {
  expect([65_536, 12 * 1_048_576, 1_073_741_824, 2_000].map(sizeText)).toEqual([
    '64 KiB',
    '12 MiB',
    '1 GiB',
    '2000 bytes',
  ]);
});
