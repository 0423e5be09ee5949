// kafkajs: writes, reads, or is a member of a group, as conversation.py in ../python says.
//
// kafkajs itself knows gzip; the other codecs are what its documentation asks users to register.

const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

const READ_MS = 30000
const TYPES = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))
const say = answer => process.stdout.write(JSON.stringify(answer) + '\n')

async function write (kafka, topics) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  for (const [topic, codec, rows] of topics) {
    const messages = rows.map(([key, value, timestamp, headers]) => ({
      key: bytes(key),
      value: bytes(value),
      partition: 0,
      timestamp: timestamp === null ? undefined : String(timestamp),
      headers: Object.fromEntries((headers || []).map(([name, data]) => [name, bytes(data)])),
    }))
    try {
      await producer.send({ topic, compression: TYPES[codec], messages })
      say({ written: topic, error: null })
    } catch (error) {
      say({ written: topic, error: String(error) })
    }
  }
  await producer.disconnect()
}

// kafkajs reads as a member of a group and in no other way.
async function read (kafka, topics) {
  const wanted = new Map(topics)
  const rows = new Map(topics.map(([topic]) => [topic, []]))
  let missing = topics.reduce((sum, [, count]) => sum + count, 0)
  let failure = null
  const consumer = kafka.consumer({ groupId: `kafkajs-${process.pid}` })
  await new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, READ_MS)
    const finish = () => { clearTimeout(timer); resolve() }
    consumer.on(consumer.events.CRASH, event => { failure = String(event.payload.error); finish() })
    consumer.connect()
      .then(() => consumer.subscribe({ topics: [...wanted.keys()], fromBeginning: true }))
      .then(() => consumer.run({
        autoCommit: false,
        eachMessage: async ({ topic, message }) => {
          const headers = Object.entries(message.headers || {}).map(([name, data]) => [name, text(data)])
          rows.get(topic).push([text(message.key), text(message.value), Number(message.timestamp), headers])
          if (--missing === 0) finish()
        },
      }))
      .catch(reject)
  })
  await consumer.disconnect()
  for (const [topic, count] of topics) say({ read: topic, rows: rows.get(topic), error: rows.get(topic).length < count ? failure : null })
}

async function takePart (kafka, { group, topic }, leave) {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 300, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  // It commits by itself after each batch.
  await consumer.run({ eachMessage: async ({ message }) => { process.stdout.write(message.value.toString() + '\n') } })
  await leave
  await consumer.disconnect()
}

async function main () {
  const lines = readline.createInterface({ input: process.stdin })
  const leave = new Promise(resolve => lines.once('close', resolve))
  const plan = JSON.parse(await new Promise(resolve => lines.once('line', resolve)))
  await zstd.init()
  const kafka = new Kafka({ brokers: [plan.bootstrap], logLevel: logLevel.ERROR })
  if (plan.group) return takePart(kafka, plan, leave)
  if (plan.write?.length) await write(kafka, plan.write)
  if (plan.read?.length) await read(kafka, plan.read)
}

main().then(() => process.stdout.write('', () => process.exit(0)), error => { console.error(error); process.exit(1) })
